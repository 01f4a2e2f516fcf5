"""Playgrounds: opened once, found again, nobody else's, honest about how far they are. On both databases."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.projects.tables import Project
from tests.server.installation import Browser, Installation, Server
from tests.server.jobs.recorded import add_job, add_model, add_training
from tests.server.playground.fake_serve import TOKEN, FakeServe, fake_serve


@pytest.fixture
def process() -> Iterator[FakeServe]:
    with fake_serve() as running:
        yield running


def _stored(installation: Installation, job_id: str) -> TrainingJob:
    found = installation.get(TrainingJob, UUID(job_id))
    assert found is not None
    return found


def test_a_model_is_loaded_once_and_its_playground_keeps_its_id(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member, name="Tune", end_time=now() - timedelta(hours=1))
    first = ada.post("/api/playground", json={"job_id": str(training.id), "idle_minutes": 5})
    assert first.status_code == 201, first.text
    job = first.json()
    assert (job["kind"], job["status"], job["name"]) == ("serve", "queued", "Tune")
    assert (job["task"]["model"], job["task"]["idle_minutes"]) == (
        f"runs/{training.id}",
        5,
    )
    again = ada.post("/api/playground", json={"job_id": str(training.id)}).json()
    assert again["id"] == job["id"]
    for left in ("completed", "cancelled", "failed"):
        installation.change(_stored(installation, job["id"]), status=left, error_code="x")
        reopened = ada.post("/api/playground", json={"job_id": str(training.id), "idle_minutes": 7}).json()
        assert (reopened["id"], reopened["status"], reopened["error_code"]) == (job["id"], "queued", None)
        assert reopened["task"]["idle_minutes"] == 7
    checkpoint = installation.all(Checkpoint)[0]
    body = {"job_id": str(training.id), "checkpoint_id": str(checkpoint.id)}
    assert ada.post("/api/playground", json=body).json()["id"] != job["id"]
    listed = ada.get("/api/playground").json()["items"]
    assert {item["job"]["name"] for item in listed} == {"Tune", "Tune, step 10"}
    assert {item["state"] for item in listed} == {"waiting"}


def test_a_second_checkpoint_of_the_run_is_loaded_beside_the_model(
    installation: Installation, server: Server, member: User, ada: Browser
) -> None:
    training = add_training(installation, member, name="Tune", end_time=now() - timedelta(hours=1))
    checkpoint = installation.all(Checkpoint)[0]
    alone = ada.post("/api/playground", json={"job_id": str(training.id)}).json()
    assert alone["task"]["other"] is None
    body = {"job_id": str(training.id), "other_checkpoint_id": str(checkpoint.id)}
    both = ada.post("/api/playground", json=body).json()
    assert both["id"] != alone["id"]
    assert both["task"]["other"] == f"runs/{training.id}/checkpoints/step-00000010"
    assert ada.post("/api/playground", json=body).json()["id"] == both["id"]
    body["other_checkpoint_id"] = str(uuid4())
    assert ada.post("/api/playground", json=body).status_code == 404
    other = server.signed_in(installation.add_user("grace@example.org"))
    body["other_checkpoint_id"] = str(checkpoint.id)
    assert other.post("/api/playground", json=body).status_code == 404


def test_weights_from_before_an_extension_are_not_talked_to(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member, end_time=now() - timedelta(hours=1))
    old = ada.post("/api/playground", json={"job_id": str(training.id)}).json()
    installation.change(_stored(installation, old["id"]), status="running")
    installation.change(training, end_time=now())
    new = ada.post("/api/playground", json={"job_id": str(training.id)}).json()
    assert new["id"] != old["id"]
    assert _stored(installation, old["id"]).status == "cancelling"
    assert ada.post("/api/playground", json={"job_id": str(training.id)}).json()["id"] == new["id"]


def test_a_model_that_was_not_trained_here_has_a_playground_too(
    installation: Installation, member: User, ada: Browser
) -> None:
    model = add_model(installation, member)
    job = ada.post("/api/playground", json={"model_id": str(model.id)}).json()
    assert (job["model_id"], job["parent_id"], job["name"]) == (str(model.id), None, "tiny-llama")
    assert ada.post("/api/playground", json={"model_id": str(model.id)}).json()["id"] == job["id"]
    (project,) = installation.all(Project)
    assert (project.name, project.model_architecture, project.model_size) == ("Playground", None, None)


def test_what_cannot_be_loaded_is_refused(installation: Installation, member: User, ada: Browser) -> None:
    unfinished = add_job(installation, member, status="running")
    theirs = add_training(installation, installation.add_user("Eve"))
    refusals = {
        409: {"job_id": str(unfinished.id)},
        404: {"job_id": str(theirs.id)},
        422: {"job_id": str(uuid4()), "model_id": str(uuid4())},
    }
    for status, body in refusals.items():
        assert ada.post("/api/playground", json=body).status_code == status
    assert ada.post("/api/playground", json={}).status_code == 422
    assert ada.post("/api/playground", json={"model_id": str(uuid4())}).status_code == 404


def test_the_way_to_ready_is_told_and_bytes_pass_through(
    installation: Installation, member: User, ada: Browser, process: FakeServe
) -> None:
    job = add_job(installation, member, kind="serve", status="queued")
    address = f"/api/playground/{job.id}"
    chat = f"{address}/v1/chat/completions"
    body = {"model": "tuned", "messages": [{"role": "user", "content": "Count."}], "temperature": 0.5}
    waiting = ada.post(chat, json=body)
    assert (waiting.status_code, waiting.json()["code"]) == (503, "not_ready")
    assert waiting.headers["Retry-After"] == "5"
    assert "waiting for a free device" in waiting.json()["detail"]
    installation.change(job, status="running")
    assert "is loading" in ada.post(chat, json=body).json()["detail"]
    assert ada.get(address).json()["state"] == "loading"
    process.announce(installation.home, job.id)
    shown = ada.get(address).json()
    assert (shown["state"], shown["models"], shown["context_length"]) == ("ready", ["base", "tuned"], 512)
    assert (shown["chat_template"], shown["last_used_at"]) == (True, None)
    assert TOKEN not in ada.get(address).text + ada.get("/api/playground").text
    answered = ada.post(chat, json=body)
    assert answered.status_code == 200, answered.text
    assert answered.json()["choices"][0]["message"]["content"] == "One two three"
    assert process.asked[0]["path"] == "/v1/chat/completions"
    assert process.asked[0]["body"] == body
    assert "Cookie" not in process.asked[0]["headers"]
    assert ada.get(address).json()["last_used_at"] is not None
    completed = ada.post(f"{address}/v1/completions", json={"prompt": "Count."})
    assert completed.json()["object"] == "text_completion"
    streamed = ada.post(chat, json={**body, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.endswith("data: [DONE]\n\n")
    installation.change(job, status="completed")
    gone = ada.post(chat, json=body)
    assert (gone.status_code, gone.json()["code"]) == (409, "not_running")


def test_a_refusal_and_a_dead_process_are_told_in_a_sentence(
    installation: Installation, member: User, ada: Browser, process: FakeServe
) -> None:
    job = add_job(installation, member, kind="serve", status="running")
    process.announce(installation.home, job.id)
    chat = f"/api/playground/{job.id}/v1/chat/completions"
    refused = ada.post(chat, json={"messages": ["refuse"]})
    assert (refused.status_code, refused.json()["code"]) == (400, "context_length_exceeded")
    broken = ada.post(chat, json={"messages": ["die"], "stream": True})
    assert "unloaded before the answer was complete" in broken.text
    process.shutdown()
    process.server_close()
    dead = ada.post(chat, json={"messages": ["hello"]})
    assert (dead.status_code, dead.json()["code"]) == (503, "not_ready")


def test_nobody_else_can_see_or_use_a_playground(
    installation: Installation, member: User, server: Server, ada: Browser, process: FakeServe
) -> None:
    job = add_job(installation, member, kind="serve", status="running", name="secret tune")
    process.announce(installation.home, job.id)
    eve = installation.add_user("Eve")
    browser, program = server.signed_in(eve), server.program(eve)
    assert browser.get("/api/playground").json()["items"] == []
    assert program.get("/v1/models").json()["data"] == []
    body = {"model": str(job.id), "messages": []}
    for path in ("chat/completions", "completions"):
        assert browser.post(f"/api/playground/{job.id}/v1/{path}", json=body).status_code == 404
        for name in (str(job.id), f"{job.id}:base", "secret tune"):
            answer = program.post(f"/v1/{path}", json={**body, "model": name})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert process.asked == []


def test_a_process_cannot_send_the_server_to_another_service_of_the_machine(
    installation: Installation, member: User, ada: Browser, process: FakeServe
) -> None:
    job = add_job(installation, member, kind="serve", status="running")
    process.announce(installation.home, job.id)
    folder = installation.home / "runs" / str(job.id)
    (folder / "serve.sock").unlink()
    # A socket of another process, by a link; then only a port, which may be any service on loopback.
    (folder / "serve.sock").symlink_to(process.file)
    body = {"model": "tuned", "messages": [{"role": "user", "content": "Hello"}]}
    refused = ada.post(f"/api/playground/{job.id}/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
    (folder / "serve.sock").unlink()
    assert ada.post(f"/api/playground/{job.id}/v1/chat/completions", json=body).status_code == 503
    assert process.asked == []
