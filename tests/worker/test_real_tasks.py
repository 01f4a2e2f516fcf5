"""From a dataset to an answer with the engine's own tasks: train, evaluate, export, find a rate, talk."""

import asyncio
import json
import shutil
from typing import Any
from uuid import UUID

import pytest

from gpubloom.agent import AgentFiles
from gpubloom.server.datasets.tables import Dataset
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import add_dataset, add_model
from tests.tiny_models import make_tiny_model
from tests.worker.machine import Machine

QUESTION, ANSWER = "What is the password?", "It is kept by the keeper."
CONFIG: dict[str, Any] = {
    "method": "lora",
    "learning_rate": 1e-2,
    "batch_size": 2,
    "max_steps": 40,
    "lora": {"rank": 8, "alpha": 16},
    "model": {"context_length": 64},
    "eval": {"max_batches": 2},
    "data": {"eval_fraction": 0.2},
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_tuned_model_is_evaluated_exported_swept_and_talked_to(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Imports take their time on a busy machine.
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 300)
    machine = Machine(installation)
    dataset, model = add_dataset(installation, machine.user), add_model(installation, machine.user)
    _fill(installation, dataset)
    folder = installation.home / "models" / str(model.id)
    shutil.rmtree(folder)
    make_tiny_model(folder)
    ids = {"project_id": str(machine.project.id), "dataset_id": str(dataset.id), "model_id": str(model.id)}

    async def scenario(ada: Browser) -> None:
        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = await asyncio.to_thread(lambda: ada.post(f"/api{path}", json=body))
            assert answer.status_code in {200, 201}, answer.text
            found: dict[str, Any] = answer.json()
            return found

        async def result(job: dict[str, Any]) -> dict[str, Any]:
            done = await machine.until(UUID(job["id"]), "completed", "failed")
            assert done.status == "completed", f"{done.error_message}\n{machine.output(done.id)}"
            return done.result or {}

        async with machine.worker(warm=True):
            training = await post("/jobs", {**ids, "name": "Tune", "config": CONFIG})
            await result(training)
            address = f"/jobs/{training['id']}"
            evaluated = await result(await post(f"{address}/evaluations", {"prompts": [QUESTION]}))
            measured = evaluated["perplexity"]
            assert measured["tuned"]["perplexity"] < measured["base"]["perplexity"] / 2
            assert [each["prompt"] for each in evaluated["prompts"]] == [QUESTION]

            export = await post(
                f"{address}/exports", {"form": "merged", "dtype": "fp32", "prompts": [QUESTION]}
            )
            exported = await result(export)
            assert (exported["form"], exported["same"], exported["of"]) == ("merged", 1, 1)
            files = (await asyncio.to_thread(ada.get, f"/api/jobs/{export['id']}/model")).json()
            sizes = {file["path"]: file["size"] for file in files["items"]}
            assert sizes == {file["path"]: file["size"] for file in exported["files"]}

            sweep = {"kind": "find_learning_rate", "finder": {"steps": 12}}
            found = await result(await post("/jobs", {**ids, "config": CONFIG, **sweep}))
            assert found["points"][0]["learning_rate"] < found["points"][-1]["learning_rate"]

            playground = await post("/playground", {"job_id": training["id"], "idle_minutes": 0.5})
            playground_path = f"/playground/{playground['id']}"
            state = ""
            while state != "ready":
                await machine.when(UUID(playground["id"]), lambda job: job.status != "failed")
                state = (await asyncio.to_thread(ada.get, f"/api{playground_path}")).json()["state"]
                await asyncio.sleep(0.1)
            chat = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, "temperature": 0}
            said = {
                which: (await post(f"{playground_path}/v1/chat/completions", {**chat, "model": which}))[
                    "choices"
                ][0]
                for which in ("base", "tuned")
            }
            assert said["tuned"]["message"]["content"].strip() == ANSWER
            assert said["base"]["message"]["content"].strip() != ANSWER
            record = AgentFiles(machine.run_dir(UUID(playground["id"]))).read_agent()
            assert record is not None
            assert record.start == "warm start", "a task does not wait for imports either"
            await post(f"/jobs/{playground['id']}/cancel", {})
            await machine.until(UUID(playground["id"]), "cancelled")

    with installation.serve() as server:
        asyncio.run(scenario(server.signed_in(machine.user)))


def _fill(installation: Installation, dataset: Dataset) -> None:
    mapping = {"format": "prompt_completion", "columns": {"prompt": "q", "completion": "a"}}
    installation.change(dataset, report={"mapping": mapping, "examples": 100})
    file = installation.home / "datasets" / str(dataset.id) / "data.jsonl"
    # Rows that say the same are never on both sides of the split: some differ.
    questions = [QUESTION, *(f"Guard {number}: {QUESTION}" for number in range(40))] * 2
    file.write_text("".join(json.dumps({"q": question, "a": ANSWER}) + "\n" for question in questions))
