"""Random requests, made from the API's own description: none may end in a server error.

An admin's browser asks, so that almost every handler is reached; limits are lifted, or they would answer in
the handlers' place.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from uuid import UUID, uuid4

import pytest
import schemathesis
from httpx2 import Response
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from gpubloom.server.accounts.tables import User
from gpubloom.server.alerts.tables import AlertChannel
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project
from gpubloom.server.runs.tables import RunView
from gpubloom.server.security.rates import Rate
from tests.server.conftest import KINDS
from tests.server.installation import PASSWORD, Browser, Installation, Server

# A stream of a living job has no end to wait for.
ENDLESS = {"/api/jobs/{job_id}/stream", "/api/training-jobs/{job_id}/stream"}
PARTS = 4


@pytest.fixture
def fuzzed(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    # A property goes before what the instance holds.
    monkeypatch.setattr(Rate, "limit", property(lambda _: 10**9), raising=False)
    with installation.serve(signup="open") as server:
        yield server


# Rules that the description cannot state; valid requests keep them, so that they get past the form.
LIKELY = {
    "email": "eve@example.org",
    "password": PASSWORD,
    "current_password": PASSWORD,
    "new_password": "another walk in that garden",
}


def real_ids(
    installation: Installation, owner: User, wanted: Collection[str] | None = None
) -> dict[str, str]:
    """Ids that exist, so that requests get past 'not found': those that are wanted, or one of everything."""
    if wanted is None:
        _documents(installation, owner)
        wanted = _MAKERS.keys()
    return {name: make(installation, owner) for name, make in _MAKERS.items() if name in wanted}


def _a_project(installation: Installation, owner: User) -> str:
    project = Project(id=uuid4(), user_id=owner.id, name="p", model_architecture="custom", model_size=1)
    return str(installation.add(project).id)


def _a_job(installation: Installation, owner: User, **fields: str) -> str:
    project_id = UUID(_a_project(installation, owner))
    job = TrainingJob(
        id=uuid4(), project_id=project_id, user_id=owner.id, config={}, **{"name": "j", **fields}
    )
    return str(installation.add(job).id)


def _a_channel(installation: Installation, owner: User) -> str:
    channel = AlertChannel(id=uuid4(), user_id=owner.id, kind="email", name="c", rules=["failed"])
    return str(installation.add(channel).id)


def _a_view(installation: Installation, owner: User) -> str:
    shown = {"query": "", "columns": [], "group": [], "sort": "-created"}
    view = RunView(id=uuid4(), user_id=owner.id, name=f"v{uuid4().hex}", view=shown)
    return str(installation.add(view).id)


def _documents(installation: Installation, owner: User) -> None:
    """Documents that became passages, and an order of questions about them that came half way."""
    made = {"filename": "d.md", "size": 9, "passage_characters": 500, "files": 1, "problems": 0, "pages": 0}
    counted = {"passages": 2, "characters": 40}
    passages = installation.add(
        Dataset(
            id=uuid4(),
            user_id=owner.id,
            name="d",
            filename="d.jsonl",
            status="ready",
            source="documents",
            format="text",
            columns={"text": "text"},
            documents={**made, **counted},
        )
    )
    order = {"endpoint": "https://llm.example.org/v1", "model": "m", "secret": None, "pairs": 1}
    limits = {"max_answer_tokens": 100, "most_tokens": 10_000, "playground": None}
    state = {"passages": 2, "passages_done": 1, "pairs_kept": 1, "rejected": 0, "tokens": 50}
    installation.add(
        Dataset(
            id=uuid4(),
            user_id=owner.id,
            name="q",
            filename="q.jsonl",
            status="ready",
            source="questions",
            format="messages",
            columns={"messages": "messages"},
            questions={"dataset_id": str(passages.id), **order, **limits, **state, "end_reason": None},
        )
    )


def _a_dataset(installation: Installation, owner: User) -> str:
    dataset = installation.add(
        Dataset(
            id=uuid4(),
            user_id=owner.id,
            name="d",
            filename="d.csv",
            source="upload",
            status="inspecting",
            size=23,
            received=23,
        )
    )
    folder = installation.home / "datasets" / str(dataset.id)
    folder.mkdir(parents=True)
    (folder / "data.csv").write_text("prompt,completion\na,b\n\n")
    return str(dataset.id)


def _a_model(installation: Installation, owner: User) -> str:
    model = installation.add(
        Model(
            id=uuid4(),
            user_id=owner.id,
            name="m",
            source="upload",
            status="uploading",
            files={"config.json": 9},
        )
    )
    (installation.home / "models" / str(model.id)).mkdir(parents=True)
    return str(model.id)


_MAKERS: dict[str, Callable[[Installation, User], str]] = {
    "project_id": _a_project,
    "job_id": _a_job,
    "run_id": lambda installation, owner: _a_job(installation, owner, name="s", kind="run", target="sent"),
    "channel_id": _a_channel,
    "view_id": _a_view,
    "user_id": lambda installation, _: str(installation.add_user(f"p{uuid4().hex}").id),
    "dataset_id": _a_dataset,
    "model_id": _a_model,
}


def ask(browser: Browser, case: schemathesis.Case) -> Response:
    """Send one generated request as a browser would."""
    if case.meta.generation.mode is schemathesis.GenerationMode.POSITIVE and isinstance(case.body, dict):
        case.body = {name: LIKELY.get(name, value) for name, value in case.body.items()}
    request = case.as_transport_kwargs(base_url="http://127.0.0.1:8000")
    body = {"json": request["json"]} if "json" in request else {"content": request.get("data")}
    if not isinstance(body.get("content"), str | bytes | None):
        body = {"data": body["content"]}
    headers = {
        name: value.encode("latin-1", errors="replace")
        for name, value in (request.get("headers") or {}).items()
        # Generated ones would take the browser's session away.
        if name.lower() not in {"authorization", "cookie", "host", "origin", "x-csrf-token"}
    }
    return browser.request(
        request["method"], request["url"], params=request.get("params"), headers=headers, **body
    )


def complaint_about(case: schemathesis.Case, answer: Response) -> str | None:
    """What is wrong with an answer: a server error, or a refusal without a code and a sentence."""
    told = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
    if answer.status_code >= 500:
        return told
    if answer.status_code >= 400 and case.path.startswith("/v1/") and "error" in answer.json():
        return None if answer.json()["error"]["message"] else told
    if answer.status_code >= 400 and case.method != "HEAD":
        problem = answer.headers["content-type"] == "application/problem+json" and answer.json()
        if not problem or not problem["code"] or not problem["detail"]:
            return told
    return None


def _complaints(browser: Browser, cases: SearchStrategy[schemathesis.Case], examples: int) -> list[str]:
    wrong: list[str] = []

    @hypothesis_settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def send(case: schemathesis.Case) -> None:
        complaint = complaint_about(case, ask(browser, case))
        if complaint is not None:
            wrong.append(complaint)

    # Nothing can be wrong in a request that carries nothing.
    with suppress(Unsatisfiable):
        send()
    return wrong


def _fuzz(
    server: Server, installation: Installation, owner: User, examples: int, *, part: int = 0, parts: int = 1
) -> None:
    """Ask every operation of the API, or, of several parts, the operations of one."""
    schema = schemathesis.openapi.from_dict(server.app.openapi())
    wrong: list[str] = []
    # Lists are not empty, whichever operation is asked first.
    real_ids(installation, owner)
    for found in islice(schema.get_all_operations(), part, None, parts):
        operation = found.ok()
        names = {parameter.name for parameter in operation.path_parameters}
        ids = real_ids(installation, owner, names)
        if operation.path in ENDLESS:
            ids = {}
        browser = server.signed_in(owner)
        for mode in _modes(operation, ids):
            cases = operation.as_strategy(generation_mode=mode, path_parameters=ids or None)
            wrong += _complaints(browser, cases, examples)
    assert not wrong, f"{len(wrong)} answers:\n" + "\n\n".join(wrong[:8])


# Every text is one.
FREE = {"path"}


def _modes(
    operation: schemathesis.APIOperation, ids: Collection[str]
) -> Iterator[schemathesis.GenerationMode]:
    """Nothing can be wrong in a request that carries ids only, and to look for it takes long."""
    yield schemathesis.GenerationMode.POSITIVE
    carried = [*operation.query, *operation.headers, *operation.cookies, *operation.path_parameters]
    if list(operation.body) or any(parameter.name not in {*ids, "path"} for parameter in carried):
        yield schemathesis.GenerationMode.NEGATIVE


def test_random_requests_meet_no_server_error(
    fuzzed: Server, installation: Installation, admin: User, kind: str
) -> None:
    """Each kind of database answers every other operation; in `make test-long` both answer all."""
    _fuzz(fuzzed, installation, admin, examples=3, part=KINDS.index(kind), parts=len(KINDS))


# In parts, because one that is cut short tells nothing of what it had found.
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_requests_meet_no_server_error(
    fuzzed: Server, installation: Installation, admin: User, part: int
) -> None:
    _fuzz(fuzzed, installation, admin, examples=100, part=part, parts=PARTS)
