"""/v1: API tokens only, OpenAI's form of errors, models by id and by name. On both databases."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground import openai_routes
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job, add_training
from tests.server.playground.fake_serve import FakeServe, fake_serve

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Count."}]


@pytest.fixture
def process() -> Iterator[FakeServe]:
    with fake_serve() as running:
        yield running


def test_only_an_api_token_with_the_right_scope_is_accepted(
    installation: Installation, member: User, server: Server, process: FakeServe
) -> None:
    job = add_job(installation, member, kind="serve", status="running")
    process.announce(installation.home, job.id)
    body = {"model": str(job.id), "messages": MESSAGES}
    for refused in (
        server.browser().post("/v1/chat/completions", json=body),
        # A cookie and its CSRF token are a browser's: pages have /api/playground.
        server.signed_in(member).post("/v1/chat/completions", json=body),
        server.signed_in(member).get("/v1/models"),
    ):
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
        assert "API token" in refused.json()["error"]["message"]
    reader = server.program(member, "read")
    assert reader.get("/v1/models").status_code == 200
    assert reader.post("/v1/chat/completions", json=body).json()["error"]["type"] == "permission_error"
    writer = server.program(member, "read", "write")
    assert writer.post("/v1/chat/completions", json=body).status_code == 200
    cross_site = writer.post("/v1/chat/completions", json=body, headers={"Origin": "https://evil.example"})
    assert cross_site.status_code == 403
    assert len(process.asked) == 1


def test_model_means_a_playground_or_a_training_by_id_or_by_name(
    installation: Installation, member: User, server: Server, process: FakeServe
) -> None:
    training = add_training(installation, member, name="Tune")
    job = add_job(
        installation,
        member,
        kind="serve",
        status="running",
        name="Tune",
        parent_id=training.id,
        project_id=training.project_id,
    )
    process.announce(installation.home, job.id)
    program = server.program(member)
    for model, there in {
        str(job.id): "tuned",
        f"{job.id}:base": "base",
        f"{job.id}:tuned": "tuned",
        "Tune": "tuned",
        "Tune:base": "base",
        str(training.id): "tuned",
    }.items():
        answer = program.post("/v1/chat/completions", json={"model": model, "messages": MESSAGES, "seed": 7})
        assert answer.status_code == 200, answer.text
        assert process.asked[-1]["body"] == {"model": there, "messages": MESSAGES, "seed": 7}
    listed = program.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [(card["id"], card["name"], card["ready"]) for card in listed["data"]] == [
        (str(job.id), "Tune", True)
    ]
    process.announce(installation.home, job.id, models=("model",))
    alone = program.post("/v1/completions", json={"model": "Tune:base", "prompt": "x"})
    assert (alone.status_code, alone.json()["error"]["code"]) == (404, "model_not_found")
    assert program.post("/v1/completions", json={"model": "Tune", "prompt": "x"}).status_code == 200
    assert process.asked[-1]["body"]["model"] == "model"


def test_errors_have_openais_form(installation: Installation, member: User, server: Server) -> None:
    program = server.program(member)
    for body, status, field in (
        ({"messages": MESSAGES}, 422, "model"),
        ({"model": 7}, 422, "model"),
        ({"model": "nothing"}, 404, None),
        ({"model": "no\u0000thing"}, 422, "model"),
        ([], 422, ""),
    ):
        answer = program.post("/v1/chat/completions", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (status, field), answer.text
        assert error["message"]
    assert program.post("/v1/chat/completions", content=b"{").json()["error"]["message"]


def test_a_model_that_is_not_loaded_is_loaded_when_it_is_first_asked(
    installation: Installation, member: User, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_routes, "_WAIT_SECONDS", 0.0)
    training = add_training(installation, member, name="Tune")
    program = server.program(member)
    assert [card["ready"] for card in program.get("/v1/models").json()["data"]] == [False]
    body = {"model": "Tune", "messages": MESSAGES}
    for _ in range(2):
        answer = program.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert answer.json()["error"]["code"] == "not_ready"
    serving = [job for job in installation.all(TrainingJob) if job.kind == "serve"]
    assert [(job.parent_id, job.status) for job in serving] == [(training.id, "queued")]
    # Of several with one name the newest finished one is meant.
    newer = add_training(installation, member, name="Tune")
    add_job(installation, member, name="Tune", status="running")
    installation.change(serving[0], status="cancelled")
    program.post("/v1/chat/completions", json=body)
    parents = {job.parent_id for job in installation.all(TrainingJob) if job.status == "queued"}
    assert parents == {newer.id}
    installation.change(serving[0], status="completed")
    program.post("/v1/chat/completions", json={**body, "model": str(serving[0].id)})
    reopened = installation.get(TrainingJob, serving[0].id)
    assert reopened is not None
    assert reopened.status == "queued"
