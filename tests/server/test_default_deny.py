"""Guards over the whole API, made from its own list of routes: a new one is covered before it is written."""

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from starlette.websockets import WebSocketDisconnect

from gpubloom.server.accounts.passkeys import Passkey
from gpubloom.server.accounts.tables import LinkedAccount, User
from gpubloom.server.alerts.tables import AlertChannel
from gpubloom.server.clock import now
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.tables import Checkpoint, JobShare, TrainingJob
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project
from gpubloom.server.rentals.tables import Budget
from gpubloom.server.runs.tables import RunView
from tests.server.installation import Installation, Server
from tests.server.rentals.machines import add_artifact
from tests.server.routes import PUBLIC, Address, addresses


def test_every_route_but_the_public_ones_refuses_strangers(sqlite_server: Server) -> None:
    stranger = sqlite_server.browser()
    open_doors = set()
    for address in addresses(sqlite_server.app):
        path = re.sub(r"{\w+(:path)?}", str(uuid4()), address.path)
        if address.method == "WEBSOCKET":
            with pytest.raises(WebSocketDisconnect), stranger.websocket_connect(path):
                pass
            continue
        answer = stranger.request(address.method, path, json=None if address.method == "GET" else {})
        if answer.status_code == 401:
            # A HEAD has no body to say it in.
            assert address.method == "HEAD" or _code(address, answer.json()) == "not_signed_in"
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        else:
            open_doors.add((address.method, address.path))
    assert open_doors <= PUBLIC
    assert {path for _, path in PUBLIC} <= {address.path for address in addresses(sqlite_server.app)}


def _code(address: Address, body: dict[str, Any]) -> object:
    # Where OpenAI's clients ask, errors have the form that these read.
    return (body["error"] if address.path.startswith("/v1/") else body)["code"]


def test_the_description_lists_every_route(sqlite_server: Server) -> None:
    described = {
        (method.upper(), path)
        for path, methods in sqlite_server.app.openapi()["paths"].items()
        for method in methods
    }
    gone = {(method, "/api/training-jobs/{path}") for method in ("GET", "POST", "PATCH", "PUT", "DELETE")}
    hidden = {("GET", "/api/openapi.json"), ("GET", "/{path:path}"), *gone}
    real = {(address.method, re.sub(":path}", "}", address.path)) for address in addresses(sqlite_server.app)}
    assert described == real - {(method, re.sub(":path}", "}", path)) for method, path in hidden}


def _a_project(installation: Installation, owner: User) -> object:
    return installation.add(
        Project(id=uuid4(), user_id=owner.id, name="p", model_architecture="custom", model_size=1)
    ).id


def _a_job(installation: Installation, owner: User) -> object:
    project_id = _a_project(installation, owner)
    return installation.add(
        TrainingJob(id=uuid4(), project_id=project_id, user_id=owner.id, name="j", config={})
    ).id


def _a_share(installation: Installation, owner: User) -> object:
    job_id = _a_job(installation, owner)
    return installation.add(JobShare(id=uuid4(), job_id=job_id, fingerprint="0" * 64)).id


def _an_artifact(installation: Installation, owner: User) -> object:
    return add_artifact(installation, _a_job(installation, owner))


def _a_checkpoint(installation: Installation, owner: User) -> object:
    return installation.add(
        Checkpoint(
            id=uuid4(),
            job_id=_a_job(installation, owner),
            attempt=1,
            step=1,
            path="checkpoints/step-00000001",
            saved_at=now(),
        )
    ).id


def _a_dataset(installation: Installation, owner: User) -> object:
    return installation.add(
        Dataset(
            id=uuid4(),
            user_id=owner.id,
            name="d",
            filename="d.csv",
            source="upload",
            status="uploading",
            size=10,
        )
    ).id


def _a_model(installation: Installation, owner: User) -> object:
    files = {"x": 10}
    return installation.add(
        Model(id=uuid4(), user_id=owner.id, name="m", source="upload", status="uploading", files=files)
    ).id


# For each id in a path: how its owner gets one. A new id needs a line here.
OWNED: dict[str, Callable[[Installation, User], object]] = {
    "project_id": _a_project,
    "job_id": _a_job,
    "run_id": _a_job,
    "view_id": lambda installation, owner: (
        installation.add(RunView(id=uuid4(), user_id=owner.id, name="v", view={})).id
    ),
    "share_id": _a_share,
    "channel_id": lambda installation, owner: (
        installation.add(
            AlertChannel(id=uuid4(), user_id=owner.id, kind="email", name="c", rules=["failed"])
        ).id
    ),
    "artifact_id": _an_artifact,
    "checkpoint_id": _a_checkpoint,
    "dataset_id": _a_dataset,
    "model_id": _a_model,
    "budget_id": lambda installation, owner: (
        installation.add(Budget(id=uuid4(), user_id=owner.id, amount=1.0)).id
    ),
    "session_id": lambda installation, owner: installation.add_session(owner)[1].id,
    "token_id": lambda installation, owner: installation.add_token(owner)[1].id,
    "link_id": lambda installation, owner: (
        installation.add(
            LinkedAccount(id=uuid4(), user_id=owner.id, provider="github", provider_account_id="1")
        ).id
    ),
    "passkey_id": lambda installation, owner: (
        installation.add(
            Passkey(id=uuid4(), user_id=owner.id, name="p", credential_id="x", public_key=b"x", sign_count=0)
        ).id
    ),
}
# What only admins may ask for is refused to members with 403, whoever it belongs to.
ADMINISTRATION = {"user_id", "invitation_id"}
# A file's path below an id that is somebody's, and names that mean something else for every person.
NOT_IDS = {"provider", "path", "name"}

BODIES: dict[tuple[str, str], object] = {
    ("POST", "/api/datasets/{dataset_id}/passages"): {"passage_characters": 500},
    ("POST", "/api/datasets/{dataset_id}/questions"): {"model": "x"},
    ("POST", "/api/datasets/{dataset_id}/questions/estimate"): {"model": "x"},
    ("PATCH", "/api/jobs/{job_id}/settings"): {"learning_rate": 0.001},
    ("PATCH", "/api/me/passkeys/{passkey_id}"): {"name": "x"},
    ("PUT", "/api/run-views/{view_id}"): {"name": "x"},
    ("PUT", "/api/projects/{project_id}"): {"name": "x", "modelArchitecture": "custom", "modelSize": 1},
}
HEADERS: dict[tuple[str, str], dict[str, str]] = {
    ("PATCH", "/api/datasets/{dataset_id}/content"): {"Upload-Offset": "0"},
    ("PATCH", "/api/models/{model_id}/files/{path}"): {"Upload-Offset": "0"},
}


def test_no_route_with_an_id_shows_or_changes_what_belongs_to_another(
    server: Server, installation: Installation
) -> None:
    owner, other = installation.add_user("Ada"), server.signed_in(installation.add_user("Eve"))
    ids = {name: make(installation, owner) for name, make in OWNED.items()}
    before = installation.everything_stored()
    checked, wrong = 0, {}
    for address in addresses(server.app):
        names = set(re.findall(r"{(\w+)(?::path)?}", address.path)) - NOT_IDS
        if not names or names & ADMINISTRATION:
            continue
        unknown = names - ids.keys()
        assert not unknown, f"{address.path}: say in OWNED how somebody gets {unknown}"
        path = re.sub(r"{(\w+)(?::path)?}", lambda match: str(ids.get(match[1], "x")), address.path)
        body = BODIES.get((address.method, address.path), {})
        headers = HEADERS.get((address.method, address.path))
        sent = None if address.method in {"GET", "HEAD"} else body
        answer = other.request(address.method, path, json=sent, headers=headers)
        code = "not_found" if address.method == "HEAD" else answer.json().get("code")
        if (answer.status_code, code) != (404, "not_found"):
            wrong[address] = (answer.status_code, answer.text[:200])
        checked += 1
    assert not wrong
    assert checked >= 5
    assert installation.everything_stored() == before
