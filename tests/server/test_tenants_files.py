"""No tenant sees, changes or deletes a byte of another: by every route, for every kind of file.

Routes and their references come from the app itself, so a new route is covered before its author thinks of
it, and a new reference has to be filled in here.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.scripts.task import WORK_FOLDER
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.run_watch import RunWatch
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.security.rates import Rate
from gpubloom.worker.held_job import HeldJob
from gpubloom.worker.run_directory import read_result, write_control
from gpubloom.worker.run_events import RunEvents
from tests.server.bringing import announce, clear_away, on_sqlite, send
from tests.server.installation import Installation, Server
from tests.server.routes import PUBLIC, Address, addresses
from tests.server.tenants import (
    BYTES,
    NAME,
    RUN_FILES,
    WORK_FILES,
    Tenant,
    bytes_of,
    end_everything,
    make_tenant,
    rows_about,
)
from tests.server.test_default_deny import ADMINISTRATION, BODIES, HEADERS, NOT_IDS, OWNED


class Of(str):
    """The id of something that a request refers to, by the name of its kind."""


TRAINING = {
    "project_id": Of("project_id"),
    "dataset_id": Of("dataset_id"),
    "eval_dataset_id": Of("eval_dataset_id"),
    "model_id": Of("model_id"),
}
MIXED = {"dataset_id": Of("dataset_id"), "weight": 1.0}
# What routes take besides the ids in their paths.
REFERENCES: dict[tuple[str, str], dict[str, Any]] = {
    ("GET", "/api/datasets/{dataset_id}/preview"): {"params": {"model_id": Of("model_id")}},
    ("GET", "/api/jobs"): {"params": {"parent_id": Of("parent_id"), "project_id": Of("project_id")}},
    ("GET", "/api/checkpoints"): {"params": {"project_id": Of("project_id")}},
    ("GET", "/api/training-jobs"): {"params": {"projectId": Of("project_id")}},
    ("GET", "/api/audit-events"): {
        "params": {"actor_id": Of("user_id"), "project_id": Of("project_id")},
    },
    ("GET", "/api/audit-events/export"): {
        "params": {"actor_id": Of("user_id"), "project_id": Of("project_id")},
    },
    ("GET", "/api/runs/compare"): {"params": {"run": [Of("job_id"), Of("parent_id")]}},
    ("GET", "/api/runs/overlay"): {"params": {"series": "loss", "group": [Of("job_id")]}},
    ("GET", "/api/runs"): {"params": {"project_id": Of("project_id")}},
    ("POST", "/api/plan"): {"json": TRAINING},
    ("POST", "/api/preflight"): {"json": TRAINING},
    ("POST", "/api/plan/script"): {"json": TRAINING},
    ("POST", "/api/jobs"): {"json": TRAINING},
    ("POST", "/api/training-jobs"): {
        "json": {
            "projectId": Of("project_id"),
            "datasetId": Of("dataset_id"),
            "evalDatasetId": Of("eval_dataset_id"),
            "modelId": Of("model_id"),
        }
    },
    ("POST", "/api/jobs/{job_id}/evaluations"): {"json": {"checkpoint_id": Of("checkpoint_id")}},
    ("GET", "/api/jobs/{job_id}/export-forms"): {"params": {"checkpoint_id": Of("checkpoint_id")}},
    ("POST", "/api/jobs/{job_id}/exports"): {
        "json": {
            "checkpoint_id": Of("checkpoint_id"),
            "average_with": [Of("other_checkpoint_id")],
            "form": "merged",
        }
    },
    ("POST", "/api/playground"): {
        "json": {
            "job_id": Of("job_id"),
            "checkpoint_id": Of("checkpoint_id"),
            "other_checkpoint_id": Of("other_checkpoint_id"),
        }
    },
    ("POST", "/api/ml-jobs"): {
        "json": {"project_id": Of("project_id"), "code": "print(1)", "provider": "local"}
    },
    ("POST", "/api/ml-jobs/quote"): {
        "json": {"project_id": Of("project_id"), "code": "print(1)", "provider": "local"}
    },
    ("PUT", "/api/budgets"): {"json": {"job_id": Of("job_id"), "amount": 1.0}},
    ("PUT", "/api/sent-runs"): {"json": {"id": Of("job_id"), "project": "p", "name": "r"}},
    ("GET", "/api/rentals"): {"params": {"job_id": Of("job_id")}},
    ("GET", "/api/alert-channels"): {"params": {"project_id": Of("project_id")}},
    ("POST", "/api/alert-channels"): {
        "json": {"kind": "email", "name": "c", "project_id": Of("project_id")},
    },
    ("GET", "/api/secrets"): {"params": {"project_id": Of("project_id")}},
    ("PUT", "/api/secrets/{name}"): {
        "params": {"project_id": Of("project_id")},
        "json": {"value": "of somebody"},
    },
    ("DELETE", "/api/secrets/{name}"): {"params": {"project_id": Of("project_id")}},
}
# The same routes again, with references that exclude the ones above.
MORE_REFERENCES: list[tuple[Address, dict[str, Any]]] = [
    (Address("POST", "/api/playground"), {"json": {"model_id": Of("model_id")}}),
    (Address("PUT", "/api/budgets"), {"json": {"project_id": Of("project_id"), "amount": 1.0}}),
    *(
        (
            Address("POST", path),
            {"json": {project: Of("project_id"), dataset: Of("eval_dataset_id"), "mix": [MIXED]}},
        )
        for path, project, dataset in (
            ("/api/jobs", "project_id", "dataset_id"),
            ("/api/training-jobs", "projectId", "datasetId"),
        )
    ),
]
# They compute an answer from what is sent and store nothing; whom a project belongs to plays no part.
CALCULATED = ("/api/plan", "/api/preflight", "/api/plan/script", "/api/ml-jobs/quote")
_ID = re.compile(r"{(\w+)(?::path)?}")


@pytest.fixture
def lifted_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit would answer in the place of what is tested."""
    monkeypatch.setattr(Rate, "limit", property(lambda _: 10**9), raising=False)


@pytest.fixture
def ada(server: Server, installation: Installation, lifted_limits: None) -> Tenant:
    tenant = make_tenant(server, installation, "Ada", label=NAME, content=BYTES)
    others = {name: make for name, make in OWNED.items() if name not in tenant.ids}
    tenant.ids |= {name: str(make(installation, tenant.user)) for name, make in others.items()}
    return tenant


@pytest.fixture
def eve(server: Server, installation: Installation, ada: Tenant) -> Tenant:
    tenant = make_tenant(server, installation, "Eve", label="eve", content="eve-bytes")
    # Of these a route takes one alone, which is then Ada's.
    tenant.ids |= {name: str(uuid4()) for name in OWNED if name not in tenant.ids}
    return tenant


@pytest.fixture
def untouched(installation: Installation, ada: Tenant, eve: Tenant) -> Iterator[None]:
    """After the test everything of Ada's is as it was."""
    files, rows = bytes_of(ada, installation.home), rows_about(ada, installation)
    yield
    assert bytes_of(ada, installation.home) == files
    assert rows_about(ada, installation) == rows


def _references(address: Address) -> list[str]:
    return [name for name in _ID.findall(address.path) if name not in NOT_IDS]


def _taken(wanted: Any) -> list[str]:
    """The references in a body or a query."""
    if isinstance(wanted, dict):
        wanted = list(wanted.values())
    if isinstance(wanted, list):
        return [name for part in wanted for name in _taken(part)]
    return [str(wanted)] if isinstance(wanted, Of) else []


def _filled(wanted: Any, chosen: dict[str, str]) -> Any:
    if isinstance(wanted, dict):
        return {name: _filled(part, chosen) for name, part in wanted.items()}
    if isinstance(wanted, list):
        return [_filled(part, chosen) for part in wanted]
    return chosen[wanted] if isinstance(wanted, Of) else wanted


def _requests(app: Any) -> list[tuple[Address, dict[str, Any]]]:
    """Every route with what it may refer to."""
    found = []
    for address in addresses(app):
        key = (address.method, address.path)
        if key in PUBLIC or address.method == "WEBSOCKET" or set(_references(address)) & ADMINISTRATION:
            continue
        found.append((address, REFERENCES.get(key, {})))
    return [*found, *MORE_REFERENCES]


def test_no_route_shows_or_changes_what_another_tenant_has(
    server: Server, ada: Tenant, eve: Tenant, untouched: None
) -> None:
    """Each reference of a route once Ada's and once Eve's own, in every combination with one of Ada's."""
    wrong = []
    asked = 0
    for address, wanted in _requests(server.app):
        names = [*_references(address), *_taken(wanted)]
        # A route that refers to nothing is asked once: what it lists must be the asker's own.
        mixes = [mix for mix in product((ada, eve), repeat=len(names)) if ada in mix] or [()]
        for mix in mixes:
            chosen = {name: tenant.ids[name] for name, tenant in zip(names, mix, strict=False)}
            if not names and address.method != "GET":
                continue
            path = _ID.sub(lambda match, ids=chosen: ids.get(match[1], "config.json"), address.path)
            body = wanted.get("json") or BODIES.get((address.method, address.path), {})
            answer = eve.browser.request(
                address.method,
                path,
                params=_filled(wanted.get("params", {}), chosen),
                json=None if address.method in {"GET", "HEAD"} else _filled(body, chosen),
                headers=HEADERS.get((address.method, address.path)),
            )
            asked += 1
            leaks = NAME.encode() in answer.content or BYTES.encode() in answer.content
            changes = address.method != "GET" and answer.status_code < 400
            if leaks or (changes and address.path not in CALCULATED) or answer.status_code >= 500:
                wrong.append((address, path, body, answer.status_code, answer.text[:200]))
    assert not wrong
    assert asked > 100


def test_every_reference_that_a_route_takes_is_tried(server: Server) -> None:
    """A new id in a body or a query needs a line in REFERENCES."""
    description = server.app.openapi()
    tried = [(address.method, address.path, wanted) for address, wanted in _requests(server.app)]
    missing = []
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            known = {
                name
                for asked_method, asked_path, wanted in tried
                if (asked_method, asked_path.replace(":path}", "}")) == (method.upper(), path)
                for name in (*_names(wanted.get("params", {})), *_names(wanted.get("json", {})))
            }
            taken = _ids_taken(operation, description["components"]["schemas"])
            missing += [(method.upper(), path, name) for name in sorted(taken - known)]
    assert not missing


def _names(wanted: Any) -> list[str]:
    """The names of all fields of a body or a query, at any depth."""
    if isinstance(wanted, dict):
        return [*wanted, *(name for part in wanted.values() for name in _names(part))]
    return [name for part in wanted for name in _names(part)] if isinstance(wanted, list) else []


def _ids_taken(operation: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    """The names of the ids in a query or a body, at any depth."""
    found: set[str] = set()

    def look(part: Any, name: str, seen: tuple[str, ...]) -> None:
        for one in part if isinstance(part, list) else [part]:
            if not isinstance(one, dict):
                continue
            if one.get("format") == "uuid":
                found.add(name)
            reference = str(one.get("$ref", "")).rpartition("/")[2]
            if reference and reference not in seen:
                look(schemas[reference], name, (*seen, reference))
            for key in ("anyOf", "oneOf", "allOf", "items", "additionalProperties"):
                look(one.get(key), name, seen)
            for inner, schema in one.get("properties", {}).items():
                look(schema, inner, seen)

    for parameter in operation.get("parameters", []):
        if parameter["in"] == "query":
            look(parameter["schema"], parameter["name"], ())
    for content in operation.get("requestBody", {}).get("content", {}).values():
        look(content.get("schema", {}), "", ())
    return found


# How an owner reads each kind of file that a machine, a script or an upload leaves.
ARTIFACTS = {
    "model": "/api/jobs/{training}/model/files/model.safetensors",
    "adapter": "/api/jobs/{training}/model/files/adapter_model.safetensors",
    "archive of a model": "/api/jobs/{training}/model/archive",
    "export": "/api/jobs/{export}/model/files/model-q4_0.gguf",
    "archive of an export": "/api/jobs/{export}/model/archive",
    "log": "/api/jobs/{training}/logs",
    "searched log": "/api/jobs/{script}/logs/search?text=ada",
    "script": "/api/jobs/{script}/script",
    "output of a script": "/api/jobs/{script}/artifacts/files/out/weights.bin",
    "archive of a script's output": "/api/jobs/{script}/artifacts/archive",
    "list of a script's output": "/api/jobs/{script}/artifacts",
    "status of a script": "/api/ml-jobs/{script}/status",
    "uploaded files of a script": "/api/ml-jobs/{script}/files",
    "converted dataset": "/api/datasets/{dataset_id}/converted",
    "preview of a dataset": "/api/datasets/{dataset_id}/preview",
    "problems of a dataset": "/api/datasets/{dataset_id}/problems",
    "checkpoint": "/api/jobs/{training}/checkpoints/{checkpoint_id}/archive",
    "samples": "/api/jobs/{training}/samples",
    "what ran": "/api/jobs/{training}/what-ran",
    "list of documents": "/api/datasets/{passages}/documents",
    "preview of passages": "/api/datasets/{passages}/preview",
    "text of passages": "/api/datasets/{passages}/converted",
    "preview of questions": "/api/datasets/{questions}/preview",
    "rejected answers": "/api/datasets/{questions}/rejected",
}


def _of(tenant: Tenant, address: str) -> str:
    return address.format(**tenant.ids, **{name: getattr(tenant, name) for name in _NAMED})


_NAMED = ("training", "script", "export", "passages", "questions")


@on_sqlite
@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_an_artifact_is_read_by_its_owner_alone(
    installation: Installation, ada: Tenant, eve: Tenant, untouched: None, artifact: str
) -> None:
    run_dir = installation.home / "runs" / ada.training
    model = run_dir / "model/model.safetensors"
    address = _of(ada, ARTIFACTS[artifact])
    if artifact == "model":
        address = address.replace(model.name, "config.json")
    own = ada.browser.get(address)
    assert own.status_code == 200, own.text
    if artifact != "list of a script's output":
        assert BYTES in own.text
    for headers in ({}, {"Range": "bytes=0-20"}, {"X-Share-Token": ada.share_secret}):
        others = eve.browser.get(address, headers=headers)
        assert (others.status_code, others.json()["code"]) == (404, "not_found")
        assert BYTES not in others.text


@on_sqlite
def test_a_share_link_opens_nothing_but_what_it_shows(
    server: Server, ada: Tenant, eve: Tenant, untouched: None
) -> None:
    visitor = server.browser()
    visitor.headers["X-Share-Token"] = ada.share_secret
    for address in ("/api/shared/job", "/api/shared/metrics"):
        answer = visitor.get(address)
        assert answer.status_code == 200
        assert BYTES not in answer.text
    for address in ARTIFACTS.values():
        assert visitor.get(_of(ada, address)).status_code == 401
    own = f"/api/jobs/{eve.training}/shares/{ada.ids['share_id']}"
    assert eve.browser.delete(own).status_code == 404
    assert visitor.get("/api/shared/job").status_code == 200


@on_sqlite
@pytest.mark.parametrize("where", ["every file", "logs", "model", "work", "work/out", "checkpoints", "media"])
def test_a_link_in_ones_own_run_leads_to_nothing_of_another(
    server: Server, installation: Installation, ada: Tenant, eve: Tenant, untouched: None, where: str
) -> None:
    """A job fills its run directory as it likes. Here it leaves links to the same files of Ada's run."""
    names = (*RUN_FILES, *WORK_FILES) if where == "every file" else (where,)
    runs = installation.home / "runs"
    for mine, theirs in ((eve.training, ada.training), (eve.script, ada.script), (eve.export, ada.export)):
        for name in names:
            if (runs / theirs / name).exists():
                _plant(runs / mine / name, runs / theirs / name)
    jobs = (eve.training, eve.script, eve.export)
    wrong = []
    for address, wanted in _requests(server.app):
        if "job_id" not in _references(address) or address.path.endswith("/stream"):
            continue
        if address.method == "DELETE" or "share_id" in address.path:
            continue
        for job, name in product(jobs, ("config.json", "adapter_model.safetensors", "out/weights.bin")):
            if "{path" not in address.path and name != "config.json":
                continue
            chosen = {**eve.ids, "job_id": job}
            path = _ID.sub(lambda match, ids=chosen, last=name: ids.get(match[1], last), address.path)
            body = wanted.get("json") or BODIES.get((address.method, address.path), {})
            sent = None if address.method in {"GET", "HEAD"} else _filled(body, chosen)
            answer = eve.browser.request(address.method, path, json=sent)
            if BYTES in answer.text or answer.status_code >= 500:
                wrong.append((address, path, answer.status_code, answer.text[:200]))
    assert not wrong
    end_everything(installation, eve)
    for job in (eve.export, eve.script, eve.training):
        assert eve.browser.delete(f"/api/jobs/{job}").status_code in {200, 204}


def _plant(link: Path, target: Path) -> None:
    """Put a link where a job would have left a file or a folder."""
    if link.is_dir():
        link.rename(link.with_name(f"{link.name}-{uuid4().hex}"))
    link.unlink(missing_ok=True)
    link.symlink_to(target)


@on_sqlite
@pytest.mark.parametrize(
    "where",
    ["traincard", "traincard/events.jsonl", "traincard/latest.json", "traincard/segments", "whole segment"],
)
def test_a_worker_reads_no_reports_through_a_link(
    installation: Installation, ada: Tenant, eve: Tenant, untouched: None, where: str
) -> None:
    """What a worker reads goes into the database, from which its owner reads it."""
    mine, theirs = (installation.home / "runs" / one for one in (eve.training, ada.training))
    if where == "whole segment":
        segments = sorted((theirs / "traincard/segments").glob("*.jsonl")) or [
            theirs / "traincard/events.jsonl"
        ]
        (mine / "traincard/segments").mkdir(exist_ok=True)
        _plant(mine / "traincard/segments/a0001.r0000.s0009.jsonl", segments[0])
    else:
        _plant(mine / where, theirs / where)
    job = installation.get(TrainingJob, UUID(eve.training))
    assert job is not None
    installation.change(job, status="running", attempt=1, lease_token=(token := uuid4()))
    job.lease_token, job.attempt = token, 1

    async def read() -> None:
        database = Database(installation.database_url)
        try:
            events = RunEvents(HeldJob(database, job), mine, RunWatch(mine, has_history=False))
            while await events.store_new():
                pass
        finally:
            await database.close()

    asyncio.run(read())
    for address in ("", "/metrics", "/logs", "/checkpoints", "/samples", "/what-ran", "/improvement"):
        answer = eve.browser.get(f"/api/jobs/{eve.training}{address}")
        assert answer.status_code == 200
        assert BYTES not in answer.text


@on_sqlite
def test_a_worker_writes_no_commands_and_takes_no_result_through_a_link(
    installation: Installation, ada: Tenant, eve: Tenant
) -> None:
    mine, theirs = (installation.home / "runs" / one for one in (eve.export, ada.export))
    write_control(theirs, "run", {}, 1)
    (theirs / "result.json").write_text(f'{{"file": "{BYTES}"}}')
    before = bytes_of(ada, installation.home)
    _plant(mine / "result.json", theirs / "result.json")
    assert BYTES not in str(read_result(mine))
    for where in ("traincard/control.json", "traincard/control.lock", "traincard"):
        _plant(mine / where, theirs / where)
        with suppress(OSError):
            write_control(mine, "cancel", {}, 1)
        assert bytes_of(ada, installation.home) == before


@on_sqlite
def test_naming_the_files_of_another_is_refused_wherever_a_path_is_taken(
    installation: Installation, ada: Tenant, eve: Tenant, untouched: None
) -> None:
    home = installation.home
    dataset = f"datasets/{ada.ids['dataset_id']}/data.jsonl"
    model = f"models/{ada.ids['model_id']}"
    run = f"runs/{ada.training}/model"
    (home / "uploads").mkdir(exist_ok=True)
    (home / "uploads/link").symlink_to(home / model)
    data_names = _spellings(home, dataset)
    model_names = [*_spellings(home, model), *_spellings(home, run), "link"]
    project = {"name": "x", "modelArchitecture": "custom", "modelSize": 1}
    config: dict[str, Any]
    bodies: list[tuple[str, dict[str, Any]]] = []
    for name in data_names:
        bodies += [
            ("/api/projects", {**project, "trainingDataPath": name}),
            ("/api/jobs", {"project_id": eve.ids["project_id"], "config": {"data": {"train_path": name}}}),
            ("/api/jobs", {"project_id": eve.ids["project_id"], "config": {"data": {"eval_path": name}}}),
        ]
    for name in model_names:
        config = {"model": {"path": name}, "data": {"train_path": name}}
        tokenizer = {"data": {"tokenizer": {"kind": "file", "path": f"{name}/tokenizer.json"}}}
        bodies += [
            ("/api/models", {"source": "folder", "path": name}),
            ("/api/jobs", {"project_id": eve.ids["project_id"], "config": config}),
            ("/api/jobs", {"project_id": eve.ids["project_id"], "config": tokenizer}),
        ]
    for address, body in bodies:
        answer = eve.browser.post(address, json=body)
        assert answer.status_code in {409, 422}, (address, body, answer.text)
        assert BYTES not in answer.text
        assert str(home) not in answer.text.replace(str(body), "")


def _spellings(home: Path, name: str) -> list[str]:
    return [str(home / name), f"../{name}", f"file://{home / name}", f"%2e%2e/{name}", f"x/../../{name}"]


@on_sqlite
def test_an_upload_is_written_nowhere_but_beneath_its_own_id(
    installation: Installation, ada: Tenant, eve: Tenant, untouched: None
) -> None:
    own, theirs = eve.unfinished_model, ada.unfinished_model
    for name in (f"../{theirs}/config.json", f"/{theirs}", f"..\\{theirs}\\config.json", "a/../../x.json"):
        announced = {"source": "upload", "files": [{"path": name, "size": 9}]}
        assert eve.browser.post("/api/models", json=announced).status_code == 422
        escaped = name.replace("/", "%2f")
        for spelling in (name, escaped, escaped.replace("%", "%25")):
            answer = send(eve.browser, f"/api/models/{own}/files/{spelling}", b"stolen")
            assert answer.status_code in {401, 403, 404, 405, 422}, (spelling, answer.text)
    for name in (f"../{ada.ids['dataset_id']}/data.jsonl", f"{installation.home}/datasets/data.csv"):
        dataset = announce(eve.browser, name, 6)
        assert send(eve.browser, f"/api/datasets/{dataset['id']}/content", b"stolen").status_code == 204
        assert [
            path.parent.name for path in installation.home.rglob("data.*") if path.read_bytes() == b"stolen"
        ]
    # Going on with the upload of another, from where it stands.
    for address in (
        f"/api/datasets/{ada.unfinished_dataset}/content",
        f"/api/models/{theirs}/files/config.json",
    ):
        assert eve.browser.head(address).status_code == 404
        assert send(eve.browser, address, BYTES.encode(), len(BYTES)).status_code == 404


@on_sqlite
def test_a_script_brings_files_nowhere_but_into_its_own_folder(
    installation: Installation, ada: Tenant, eve: Tenant, untouched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.server.ml_jobs.service.why_no_sandbox", lambda: None)
    for name in (
        f"../../{ada.script}/{WORK_FOLDER}/train.py",
        f"/{ada.script}",
        "a/../../../x.py",
        "..\\x.py",
    ):
        files = [{"path": "train.py", "text": "print(1)"}, {"path": name, "text": "stolen"}]
        answer = eve.browser.post("/api/ml-jobs", json={"provider": "local", "files": files})
        assert answer.status_code == 422, answer.text


@on_sqlite
def test_repeating_the_request_of_another_with_their_key_makes_ones_own(
    ada: Tenant, eve: Tenant, installation: Installation
) -> None:
    body = {"name": f"{NAME} again", "modelArchitecture": "custom", "modelSize": 1}
    headers = {"Idempotency-Key": "the-same-key"}
    first = ada.browser.post("/api/projects", json=body, headers=headers).json()
    second = eve.browser.post("/api/projects", json=body, headers=headers).json()
    assert first["id"] != second["id"]
    assert eve.browser.get(f"/api/projects/{first['id']}").status_code == 404


@on_sqlite
def test_deleting_all_that_one_has_deletes_nothing_of_another(
    server: Server, installation: Installation, ada: Tenant, eve: Tenant, untouched: None
) -> None:
    home = installation.home
    # In the place of whole folders as well: a run directory, a dataset and a model that lead to Ada's.
    for mine, theirs in zip(eve.folders(home), ada.folders(home), strict=True):
        for path in mine.rglob("*"):
            other = theirs / path.relative_to(mine)
            if path.is_file() and not path.is_symlink() and other.exists():
                _plant(path, other)
        (mine / "folder").symlink_to(theirs)
    end_everything(installation, eve)
    addresses_ = [
        *(f"/api/jobs/{job}" for job in (eve.export, eve.script, eve.training)),
        *(f"/api/datasets/{one}" for one in (eve.ids["dataset_id"], eve.unfinished_dataset)),
        *(f"/api/datasets/{one}" for one in (eve.questions, eve.passages)),
        *(f"/api/models/{one}" for one in (eve.ids["model_id"], eve.unfinished_model)),
        f"/api/projects/{eve.ids['project_id']}",
    ]
    for address in addresses_:
        assert eve.browser.delete(address).status_code == 204, address
    clear_away(server.settings)
    assert not [folder for folder in eve.folders(home) if folder.exists()]
