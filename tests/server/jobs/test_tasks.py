"""Tasks about a model, through the API: what is queued, refused, counted and deleted. On both databases."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from gpubloom.plan import Gpu, Hardware
from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.ingest import store_checkpoints
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob, Worker
from gpubloom.traincard import RunEvent
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_checkpoint, add_job, add_project, add_training


def test_an_evaluation_is_queued_about_the_finished_model(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member, name="Tune")
    answer = ada.post(
        f"/api/jobs/{training.id}/evaluations",
        json={"prompts": ["Who?"], "max_new_tokens": 16, "max_batches": 3, "lm_eval_tasks": ["arc_easy"]},
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["kind"], job["status"], job["name"]) == ("evaluate", "queued", "Tune")
    assert (job["parent_id"], job["project_id"]) == (str(training.id), str(training.project_id))
    assert job["task"] == {
        "kind": "evaluate",
        # The home of the server is nobody else's business.
        "model": f"runs/{training.id}",
        "base": None,
        "device": "cpu",
        "data_path": None,
        "fetches_data": False,
        "prompts": ["Who?"],
        "max_new_tokens": 16,
        "max_batches": 3,
        "lm_eval_tasks": ["arc_easy"],
    }
    stored = installation.get(TrainingJob, UUID(job["id"]))
    assert stored is not None
    assert (stored.machine, stored.gpus) == ("here", 0), "its files lie on one machine"
    script = ada.get(f"/api/jobs/{job['id']}/script").json()
    compile(script["script"], "task.py", "exec")
    assert '"max_batches": 3' in script["config"]


@pytest.mark.long
def test_a_checkpoint_can_be_exported_before_the_training_has_ended(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member, status="running", name="Tune")
    address = f"/api/jobs/{training.id}/exports"
    too_early = ada.post(address, json={"form": "merged"})
    assert (too_early.status_code, too_early.json()["code"]) == (409, "no_model_yet")
    checkpoint = installation.all(Checkpoint)[0]
    job = ada.post(
        address, json={"form": "gguf", "dtype": "fp16", "checkpoint_id": str(checkpoint.id)}
    ).json()
    assert job["task"]["model"].endswith("/checkpoints/step-00000010")
    assert (job["task"]["form"], job["task"]["dtype"]) == ("gguf", "fp16")
    assert job["task"]["name"] == "Tune, step 10", "a GGUF file is named like the model, not like its folder"
    assert (job["checkpoint_id"], job["name"]) == (str(checkpoint.id), "Tune, step 10")
    installation.change(checkpoint, removed=True)
    removed = ada.post(address, json={"checkpoint_id": str(checkpoint.id)})
    assert (removed.status_code, removed.json()["code"]) == (409, "checkpoint_removed")
    assert ada.post(address, json={"checkpoint_id": str(uuid4())}).status_code == 404


def test_the_mean_of_several_checkpoints_is_exported_by_one_job(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member, status="running", name="Tune")
    first, second = installation.all(Checkpoint)[0], add_checkpoint(installation, training, 20)
    address = f"/api/jobs/{training.id}/exports"
    body = {"checkpoint_id": str(first.id), "average_with": [str(second.id)]}
    answer = ada.post(address, json=body)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert job["name"] == job["task"]["name"] == "Tune, mean of 2 checkpoints"
    folder = f"runs/{training.id}/checkpoints"
    assert job["task"]["model"] == f"{folder}/step-00000010"
    assert job["task"]["average_with"] == [f"{folder}/step-00000020"]

    def code(**changes: Any) -> tuple[int, str]:
        refused = ada.post(address, json=body | changes)
        problem = refused.json()
        return refused.status_code, (problem.get("errors") or [problem])[0]["code"]

    assert code(checkpoint_id=None) == (422, "too_few_checkpoints")
    assert code(average_with=[str(first.id)]) == (422, "same_checkpoint_twice")
    assert code(average_with=[str(second.id)] * 2) == (422, "same_checkpoint_twice")
    theirs = add_checkpoint(installation, add_training(installation, member), 30)
    assert code(average_with=[str(theirs.id)]) == (404, "checkpoint_not_found")
    installation.change(second, removed=True)
    assert code() == (409, "checkpoint_removed")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"model_type": "llama"}, None),
        ({"model_type": "gpt_neox"}, "gpt_neox"),
        ({"model_type": "qwen2", "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    ],
)
def test_gguf_is_offered_only_for_models_that_can_be_written(
    installation: Installation,
    member: User,
    ada: Browser,
    monkeypatch: pytest.MonkeyPatch,
    model: dict[str, Any],
    reason: str | None,
) -> None:
    monkeypatch.delenv("BLOOM_GGUF_CONVERTER", raising=False)
    training = add_training(installation, member)
    file = installation.home / "runs" / str(training.id) / "model" / "config.json"
    file.write_text(json.dumps(model))
    address = f"/api/jobs/{training.id}"
    forms = {each["form"]: each for each in ada.get(f"{address}/export-forms").json()["items"]}
    assert forms["merged"] == {"form": "merged", "available": True, "reason": None}
    assert forms["gguf"]["available"] is (reason is None)
    answer = ada.post(f"{address}/exports", json={"form": "gguf"})
    if reason is None:
        assert answer.status_code == 201, answer.text
        return
    assert reason in forms["gguf"]["reason"]
    assert (answer.status_code, answer.json()["code"]) == (409, "unsupported_by_gguf")
    converter = installation.home / "convert.py"
    converter.write_text("")
    monkeypatch.setenv("BLOOM_GGUF_CONVERTER", str(converter))
    assert ada.post(f"{address}/exports", json={"form": "gguf"}).status_code == 201


def test_a_checkpoint_of_another_job_is_not_taken_for_ones_own(
    installation: Installation, member: User, ada: Browser
) -> None:
    add_training(installation, installation.add_user("Eve"))
    theirs = installation.all(Checkpoint)[0]
    mine = add_training(installation, member)
    for task in ("exports", "evaluations"):
        answer = ada.post(f"/api/jobs/{mine.id}/{task}", json={"checkpoint_id": str(theirs.id)})
        assert answer.status_code == 404


def test_a_push_needs_a_stored_token_and_the_job_never_shows_it(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member)
    body = {"form": "merged", "hub": {"repository": "ada/tuned"}}
    address = f"/api/jobs/{training.id}/exports"
    refused = ada.post(address, json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_hub_token")
    assert ada.put("/api/me/hub-token", json={"token": "hf_verysecret"}).status_code == 200
    job = ada.post(address, json=body)
    assert job.json()["task"]["hub"] == {"repository": "ada/tuned", "private": True}
    assert "hf_verysecret" not in job.text + installation.everything_stored()


def test_lists_and_totals_are_about_trainings_unless_asked(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member)
    task = add_job(
        installation,
        member,
        kind="evaluate",
        parent_id=training.id,
        project_id=training.project_id,
        status="running",
    )
    finder = add_job(
        installation, member, kind="find_learning_rate", project_id=training.project_id, status="queued"
    )

    def listed(**query: Any) -> set[str]:
        return {item["id"] for item in ada.get("/api/jobs", params=query).json()["items"]}

    assert listed() == {str(training.id)}
    assert listed(kind="evaluate") == {str(task.id)}
    assert listed(kind=["evaluate", "find_learning_rate"]) == {str(task.id), str(finder.id)}
    assert listed(parent_id=str(training.id)) == {str(task.id)}
    assert listed(parent_id=str(training.id), kind="export") == set()
    totals = ada.get("/api/jobs/totals").json()
    assert (totals["running"], totals["queued"], totals["completed"]) == (0, 0, 1)


def test_tasks_wait_in_a_queue_of_their_own(installation: Installation, member: User, ada: Browser) -> None:
    add_job(installation, member, status="queued")
    training = add_training(installation, member)
    address = f"/api/jobs/{training.id}/evaluations"
    assert [ada.post(address, json={}).json()["queue_position"] for _ in range(2)] == [1, 2]


NOT_ASKED = [
    ("serve", "pause", "A playground cannot be paused; cancel it instead."),
    ("export", "pause", "An export cannot be paused; cancel it instead."),
    ("evaluate", "extend", "An evaluation cannot be extended."),
    ("find_learning_rate", "save", "A learning-rate finder cannot be told to save a checkpoint."),
    ("serve", "settings", "A playground cannot be changed while running."),
]


def test_what_makes_no_sense_for_a_kind_is_refused_with_a_sentence(
    installation: Installation, member: User, ada: Browser
) -> None:
    for kind, asked, sentence in NOT_ASKED:
        job = add_job(installation, member, kind=kind, status="running")
        address = f"/api/jobs/{job.id}/{asked}"
        if asked == "settings":
            answer = ada.patch(address, json={"learning_rate": 0.1})
        else:
            answer = ada.post(address, json={"epochs": 99} if asked == "extend" else None)
        assert (answer.status_code, answer.json()["detail"]) == (409, sentence)


def test_every_kind_can_be_cancelled_begun_again_and_deleted(
    installation: Installation, member: User, ada: Browser
) -> None:
    for kind in ("find_learning_rate", "evaluate", "export", "serve"):
        job = add_job(installation, member, kind=kind, status="running")
        address = f"/api/jobs/{job.id}"
        assert ada.delete(address).status_code == 409
        assert ada.post(f"{address}/cancel").json()["status"] == "cancelling"
        installation.change(job, status="cancelled")
        assert ada.post(f"{address}/resume").json()["status"] == "queued"
        installation.change(job, status="failed")
        assert ada.delete(address).status_code == 204


def test_a_training_is_deleted_with_its_tasks_but_not_under_one_that_runs(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member)
    task = add_job(
        installation,
        member,
        kind="export",
        status="running",
        parent_id=training.id,
        project_id=training.project_id,
    )
    folder = installation.home / "runs" / str(task.id)
    folder.mkdir(parents=True)
    refused = ada.delete(f"/api/jobs/{training.id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "task_in_the_way")
    assert refused.json()["detail"] == "The job's export is still running. Cancel the export first."
    installation.change(task, status="completed")
    assert ada.delete(f"/api/jobs/{training.id}").status_code == 204
    assert installation.all(TrainingJob) == []
    assert not folder.exists()


def test_only_trainings_can_be_evaluated_exported_and_shared(
    installation: Installation, member: User, ada: Browser
) -> None:
    task = add_job(installation, member, kind="evaluate", status="completed")
    for path in ("evaluations", "exports", "shares"):
        assert ada.post(f"/api/jobs/{task.id}/{path}", json={}).status_code == 409


def test_an_export_offers_its_files_whatever_their_form(
    installation: Installation, member: User, ada: Browser
) -> None:
    job = add_job(installation, member, kind="export", status="completed", result={"form": "gguf"})
    address = f"/api/jobs/{job.id}"
    assert ada.get(address).json()["has_model"] is False
    folder = installation.home / "runs" / str(job.id) / "model"
    folder.mkdir(parents=True)
    (folder / "tuned.gguf").write_bytes(b"GGUF")
    shown = ada.get(address).json()
    assert (shown["has_model"], shown["result"]["form"]) == (True, "gguf")
    assert ada.get(f"{address}/model/files/tuned.gguf").content == b"GGUF"


def test_on_a_machine_with_gpus_tasks_take_one(
    installation: Installation, member: User, ada: Browser
) -> None:
    gpu = Gpu(name="NVIDIA H200", memory_bytes=150 * 10**9)
    hardware = Hardware(name="box", host_memory_bytes=64 * 10**9, cpu_cores=8, gpus=(gpu,))
    installation.add(Worker(id=uuid4(), name="box:1", hardware=hardware.model_dump(mode="json")))
    training = add_training(installation, member)
    job = ada.post(f"/api/jobs/{training.id}/evaluations", json={}).json()
    assert job["task"]["device"] == "cuda"
    stored = installation.get(TrainingJob, UUID(job["id"]))
    assert stored is not None
    assert stored.gpus == 1


def test_a_finder_is_planned_like_the_training_it_is_for(
    installation: Installation, member: User, ada: Browser
) -> None:
    (installation.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 500)
    project = add_project(installation, member, training_data_path="corpus.txt")
    body = {
        "project_id": str(project.id),
        "kind": "find_learning_rate",
        "config": {"batch_size": 2, "epochs": 1},
        "finder": {"lowest": 1e-5, "highest": 1e-1, "steps": 20},
    }
    answer = ada.post("/api/jobs", json=body)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["kind"], job["task"]["kind"]) == ("find_learning_rate", "find_learning_rate")
    assert (job["task"]["lowest"], job["task"]["steps"]) == (1e-5, 20)
    assert job["task"]["train"]["device"] == "cpu"
    assert job["plan"]["steps"] > 0
    narrow = ada.post("/api/jobs", json={**body, "finder": {"lowest": 1e-2, "highest": 5e-2}})
    assert (narrow.status_code, "ten times" in narrow.json()["detail"]) == (422, True)
    training = ada.post("/api/jobs", json={**body, "kind": "train"})
    assert training.json()["errors"][0]["field"] == "finder"


def test_all_checkpoints_are_listed_with_what_they_came_from(
    installation: Installation, member: User, ada: Browser
) -> None:
    add_training(installation, installation.add_user("Eve"))
    training = add_training(installation, member, name="Tune", summary={"facts": {"parameters": 7}})
    page = ada.get("/api/checkpoints").json()
    assert page["total"] == 1
    found = page["items"][0]
    assert (found["job_id"], found["job_name"], found["step"]) == (str(training.id), "Tune", 10)
    assert (found["best"], found["size"], found["metrics"]) == (True, 100, {"eval/loss": 1.5})
    assert (found["base_model"], found["dataset_name"], found["parameters"]) == ("tiny", None, 7)
    # Saved by an earlier version.
    assert found["details"] == {
        **dict.fromkeys(("training_seconds", "parameters", "trained_parameters", "method", "precision")),
        "optimizations": [],
    }
    assert ada.get("/api/checkpoints", params={"search": "nothing"}).json()["total"] == 0
    assert ada.get("/api/checkpoints", params={"search": "tun", "best": True}).json()["total"] == 1
    assert ada.get(f"/api/jobs/{training.id}/checkpoints").json()["facts"] == {"parameters": 7}


def test_checkpoints_of_a_run_that_diverged_are_listed_with_what_is_no_number(
    installation: Installation, member: User, ada: Browser
) -> None:
    values = {"train/tokens_per_second": {"step": 3, "value": "Infinity"}}
    add_training(installation, member, summary={"facts": {"parameters": "NaN"}, "values": values})
    answer = ada.get("/api/checkpoints")
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["items"]
    assert (found["parameters"], found["tokens_per_second"]) == (None, "Infinity")


def test_a_checkpoint_is_listed_with_what_its_run_said_of_it_and_without_what_it_cannot_mean(
    installation: Installation, member: User, ada: Browser
) -> None:
    training = add_training(installation, member)
    said = {
        "training_seconds": 61.5,
        "parameters": 1_000,
        "trained_parameters": 10,
        "precision": ["bf16"],
        "optimizations": ["compiled layers", 3, "x" * 500],
        "note": "mine",
    }
    fields = {"path": "checkpoints/step-00000020", "size": 5, "metadata": said}
    event = RunEvent(1, 0, 9, 1.0, "checkpoint", 20, fields)
    odd = RunEvent(1, 0, 10, 2.0, "checkpoint", 21, {"path": "checkpoints/step-00000021", "metadata": [1]})

    async def store() -> None:
        database = Database(installation.database_url)
        async with database.write() as session:
            await store_checkpoints(session, await session.get_one(TrainingJob, training.id), [event, odd])
        await database.close()

    asyncio.run(store())
    found = {one["step"]: one["details"] for one in ada.get("/api/checkpoints").json()["items"]}
    assert (found[20]["training_seconds"], found[20]["trained_parameters"]) == (61.5, 10)
    assert (found[20]["precision"], found[21]["parameters"]) == (None, None)
    assert found[20]["optimizations"] == ["compiled layers", "x" * 200]
    assert ada.get(f"/api/jobs/{training.id}/checkpoints").json()["items"][0]["details"] in found.values()
