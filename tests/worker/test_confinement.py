"""What trainings and tasks of a server see: their own inputs, and nothing of others."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.agent.spec import JobSpec
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.providers.local.sandbox import why_no_sandbox
from gpubloom.worker.confinement import Confinement, input_paths
from tests.worker.machine import Machine

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
REASON = why_no_sandbox()
needs_sandbox = pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}")


def _file(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return str(path)


@needs_sandbox
@on_sqlite
def test_a_training_reads_its_own_inputs_and_nothing_else_of_the_server(machine: Machine) -> None:
    home = machine.settings.home
    mine = _file(home / "datasets" / "mine" / "text.txt")
    theirs = [
        _file(home / path) for path in ("datasets/theirs/text.txt", "runs/theirs/model/weights", "secret.key")
    ]
    job_id = machine.add_job(toy={"steps": 2, "reads": [mine, *theirs, str(home / "runs"), "/etc/shadow"]})
    job = machine.job(job_id)
    data = {**job.config["data"], "train_path": str(home / "datasets" / "mine" / "*.txt")}
    machine.installation.change(job, config={**job.config, "data": data})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(job_id).status == "completed", machine.job(job_id).error_message
    # The folder of runs is a way to its own run, and shows no other one.
    looked = json.loads((machine.run_dir(job_id) / "looked.json").read_text())
    assert looked == [mine, str(home / "runs")]


@needs_sandbox
@on_sqlite
def test_a_run_cannot_choose_what_later_tasks_with_its_model_see(machine: Machine) -> None:
    home = machine.settings.home
    base, theirs = (
        _file(home / "models" / "base" / "config.json"),
        _file(home / "models" / "theirs" / "config.json"),
    )
    run = machine.add_job()
    job = machine.job(run)
    machine.installation.change(
        job, status="completed", config={**job.config, "model": {"path": str(Path(base).parent)}}
    )
    # What a training left in its directory names the model of somebody else.
    (machine.run_dir(run) / "config.json").write_text(
        json.dumps({"model": {"path": str(Path(theirs).parent)}})
    )
    model = str(machine.run_dir(run))
    task = machine.add_task("evaluate", toy={"reads": [base, theirs, model]}, config={"base": model})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(task, "completed", "failed")

    asyncio.run(scenario())
    assert machine.seen(task)["read"] == [base, model]


@needs_sandbox
@on_sqlite
def test_a_task_with_a_checkpoint_sees_the_config_of_its_run_and_no_other_run(machine: Machine) -> None:
    home = machine.settings.home
    base, theirs = (_file(home / path) for path in ("models/base/config.json", "runs/theirs/config.json"))
    run = machine.add_job()
    job = machine.job(run)
    machine.installation.change(
        job, status="completed", config={**job.config, "model": {"path": str(Path(base).parent)}}
    )
    # The base of an adapter is named in the config of its run.
    config = _file(machine.run_dir(run) / "config.json")
    weights = _file(machine.run_dir(run) / "checkpoints" / "step-1" / "weights")
    reads = [base, config, weights, theirs]
    task = machine.add_task("evaluate", toy={"reads": reads}, config={"base": str(Path(weights).parent)})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(task, "completed", "failed")

    asyncio.run(scenario())
    assert machine.seen(task)["read"] == [base, config, weights]


def test_inputs_are_what_a_config_names(tmp_path: Path) -> None:
    train = {
        "model": {"path": "/models/a"},
        "data": {
            "train_path": "/data/*/part-?.txt",
            "eval_path": "/data/eval.txt",
            "tokenizer": {"path": "relative"},
        },
    }
    expected = [Path("/models/a"), Path("/data"), Path("/data/eval.txt")]
    assert input_paths(train) == expected
    assert input_paths({"kind": "find_learning_rate", "train": train}) == expected
    task = {"kind": "evaluate", "model": "/runs/1", "base": "/models/b", "prompts": ["/etc/passwd"]}
    assert input_paths(task) == [Path("/runs/1"), Path("/models/b")]


@on_sqlite
@pytest.mark.parametrize(("is_required", "is_off"), [(True, False), (False, False), (False, True)])
def test_without_a_sandbox_the_operator_decides(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_required: bool, is_off: bool
) -> None:
    monkeypatch.setattr("gpubloom.worker.confinement.why_no_sandbox", lambda: "Namespaces are forbidden.")
    job = machine.job(machine.add_job())
    spec = JobSpec(str(job.id), machine.run_dir(job.id), 1, ("python", "train.py"))
    confinement = Confinement(machine.settings.home, is_required=is_required, is_off=is_off)

    def prepared() -> JobSpec:
        with Reservation([], [], {}) as nothing:
            return confinement.of_a_training(spec, job, nothing, network=False)

    if is_required:
        with pytest.raises(ProviderError, match="Namespaces are forbidden"):
            prepared()
    else:
        found: Any = prepared()
        assert found.confinement is None
        assert found.note == ("" if is_off else "The job runs without a sandbox. Namespaces are forbidden.")
