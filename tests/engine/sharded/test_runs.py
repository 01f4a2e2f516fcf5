"""Whole runs with a divided model: chosen, trained, saved, stopped, continued elsewhere, exported."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from gpubloom.engine.checkpoint import is_sharded, list_checkpoints
from gpubloom.plan import TrainConfig
from tests.engine.conftest import sample_text
from tests.engine.parallel.rig import (
    finish,
    ranks_of,
    started,
    train,
    wait_for_checkpoint,
    wait_for_step,
    write_adapter_run,
    write_examples,
    write_text_run,
)
from tests.engine.runs import Run, read_events, read_losses
from tests.tiny_models import make_tiny_model


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(sample_text(600), encoding="utf-8")
    return file


def set_fields(run: Path, **fields: Any) -> None:
    """The same run as another machine would have it."""
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(TrainConfig.model_validate(config | fields).to_json())


def assert_same_losses(run: Path, expected: Path, steps: int) -> None:
    losses, wanted = read_losses(run), read_losses(expected)
    assert list(losses) == list(wanted) == list(range(1, steps + 1))
    assert list(losses.values()) == pytest.approx(list(wanted.values()), rel=1e-5)


@pytest.mark.long
def test_a_run_with_a_sharded_model_saves_continues_and_ends_as_one_with_a_whole_one(
    tmp_path: Path, text: Path
) -> None:
    whole, sharded = (
        Run(tmp_path / executor, _config(text, executor=executor, checkpoint={"every_steps": 4}))
        for executor in ("block", "sharded")
    )
    whole.train()
    sharded.train(stop_at=7)
    saved = list_checkpoints(sharded.folder / "checkpoints")
    assert [path.name for path in saved] == ["step-00000004", "step-00000007"]
    assert all(is_sharded(path) for path in saved)
    sharded.train(resume=True)
    assert_same_losses(sharded.folder, whole.folder, 20)
    announced = [event["path"] for event in sharded.events("checkpoint")]
    assert announced[:2] == ["checkpoints/step-00000004", "checkpoints/step-00000007"]
    assert sharded.events("describe")[0]["facts"]["executor"] == "sharded"
    ours, theirs = (load_file(run.folder / "model" / "model.safetensors") for run in (sharded, whole))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert float((ours[name] - tensor).abs().max()) < 1e-4, name


@pytest.mark.long
def test_two_processes_with_a_sharded_model_train_as_one_with_a_whole_one(tmp_path: Path, text: Path) -> None:
    whole = Run(tmp_path / "whole", _config(text, batch_size=8))
    whole.train()
    sharded = write_text_run(
        tmp_path / "divided", text, batch_size=4, processes=2, executor="sharded", max_steps=20
    )
    train(sharded)
    assert_same_losses(sharded, whole.folder, 20)
    facts = {
        name: value for event in read_events(sharded, "describe") for name, value in event["facts"].items()
    }
    assert (facts["executor"], facts["processes"]) == ("sharded", 2)
    (saved,) = read_events(sharded, "checkpoint")
    assert saved["path"] == "checkpoints/step-00000020"
    assert is_sharded(sharded / saved["path"])
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (sharded, whole.folder))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].shape == tensor.shape
        assert float((ours[name] - tensor).abs().max()) < 1e-4, name


def _config(text: Path, **fields: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "device": "cpu",
            "epochs": 1,
            "max_steps": 20,
            "model": {"preset": "nano", "context_length": 32},
            "data": {"train_path": str(text)},
            **fields,
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_adapters_train_the_same_by_one_and_two_processes_whole_and_sharded(
    tmp_path: Path, dropout: float
) -> None:
    model = make_tiny_model(tmp_path / "model")
    examples = write_examples(tmp_path / "chats.jsonl")
    shared = {"lora": {"dropout": dropout}, "epochs": 10, "max_steps": 20}
    runs = {
        (executor, processes): write_adapter_run(
            tmp_path / f"{executor}-{processes}",
            model,
            examples,
            executor=executor,
            processes=processes,
            batch_size=8 // processes,
            **shared,
        )
        for executor in ("block", "sharded")
        for processes in (1, 2)
    }
    for run in runs.values():
        train(run)
        assert_same_losses(run, runs["block", 1], 20)
        assert (run / "model" / "adapter_model.safetensors").is_file()


@pytest.mark.long
def test_a_run_goes_on_sharded_whole_and_sharded_again_in_two_one_and_three_processes(
    tmp_path: Path, text: Path
) -> None:
    fields = {"batch_size": 12, "max_steps": 15, "checkpoint": {"every_steps": 5, "keep_last": 9}}
    straight = write_text_run(tmp_path / "straight", text, **fields)
    train(straight)
    moved = write_text_run(tmp_path / "moved", text, **fields)
    stopping = (moved / "train.py").read_text().replace("session.stop,", "stop_at(session),")
    (moved / "train.py").write_text(f"from tests.engine.sharded.stopping import stop_at\n{stopping}")
    for number, (executor, processes) in enumerate([("sharded", 2), ("block", 1), ("sharded", 3)]):
        set_fields(moved, executor=executor, processes=processes, batch_size=12 // processes)
        arguments = ["--resume"] if number else []
        environment = {"STOP_AT": str(5 * (number + 1)), "PYTHONPATH": str(Path(__file__).parents[3])}
        with started([moved / "train.py", *arguments], environment) as process:
            finish(process)
    assert_same_losses(moved, straight, 15)
    forms = {path.name: is_sharded(path) for path in list_checkpoints(moved / "checkpoints")}
    assert forms == {"step-00000005": True, "step-00000010": False, "step-00000015": True}


@pytest.mark.long
def test_killed_while_it_saves_a_sharded_run_continues_from_what_is_complete(
    tmp_path: Path, text: Path
) -> None:
    fields = {"processes": 2, "executor": "sharded", "max_steps": 60, "checkpoint": {"every_steps": 2}}
    straight = write_text_run(tmp_path / "straight", text, **fields)
    train(straight)
    killed = write_text_run(tmp_path / "killed", text, **fields)
    for number in range(2):
        with started([killed / "train.py", *(["--resume"] if number else [])]) as process:
            wait_for_step(killed, 5 + 15 * number, process)
            # All of them: nobody is left who would start the others again.
            os.kill(process.pid, signal.SIGKILL)
            for pid in ranks_of(process).values():
                os.kill(pid, signal.SIGKILL)
        for path in list_checkpoints(killed / "checkpoints"):
            assert (path / "checksums.json").is_file()
    train(killed, "--resume")
    assert_same_losses(killed, straight, 60)
    assert not list((killed / "checkpoints").glob(".writing-*"))


@pytest.mark.long
@pytest.mark.parametrize("rank", [1, 0])
def test_when_a_process_of_a_sharded_run_is_killed_the_run_goes_on_by_itself(
    tmp_path: Path, text: Path, rank: int
) -> None:
    fields = {"processes": 2, "executor": "sharded", "max_steps": 40, "checkpoint": {"every_steps": 2}}
    straight = write_text_run(tmp_path / "straight", text, **fields)
    train(straight)
    disturbed = write_text_run(tmp_path / "disturbed", text, **fields)
    with started([disturbed / "train.py"]) as process:
        wait_for_checkpoint(disturbed, process)
        os.kill(ranks_of(process)[rank], signal.SIGKILL)
        words = finish(process)
    assert f"Rank {rank} was terminated by SIGKILL" in words
    assert read_losses(disturbed) == read_losses(straight)
    assert is_sharded(list_checkpoints(disturbed / "checkpoints")[-1])
