"""Several processes on one machine train as one would, obey as one, and leave none behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from gpubloom.plan import Hardware, TrainConfig, plan, run_files
from gpubloom.traincard import ControlFile
from tests.engine.runs import read_events, read_losses
from tests.tiny_models import make_tiny_model

MACHINE = Hardware(host_memory_bytes=8_000_000_000, cpu_cores=2)
QUESTIONS = ("What is the password?", "Say something about the sea.", "And the weather of tomorrow?")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "chats.jsonl"
    rows = [
        {"prompt": f"{QUESTIONS[number % 3]} {number}", "completion": f"Seven herons, {number * 37 % 101}."}
        for number in range(30)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def write_run(folder: Path, model: Path, examples: Path, **fields: Any) -> Path:
    folder.mkdir()
    config = TrainConfig.model_validate(
        {
            "device": "cpu",
            "method": "lora",
            "epochs": 3,
            "learning_rate": 1e-2,
            "lora": {"dropout": 0.1},
            "model": {"path": str(model), "context_length": 64},
            "data": {"kind": "examples", "train_path": str(examples), "packing": False},
            **fields,
        }
    )
    for name, text in run_files(config, plan(config, MACHINE), "0").items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def start(run: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(run / "train.py"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return errors


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not (run / "traincard" / "events.jsonl").exists() or max(read_losses(run), default=0) < step:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"step {step} was not reached"
        time.sleep(0.05)


def companions_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_two_processes_train_adapters_as_one_does(tmp_path: Path, model: Path, examples: Path) -> None:
    alone = write_run(tmp_path / "alone", model, examples, batch_size=8)
    together = write_run(tmp_path / "together", model, examples, batch_size=4, processes=2)
    for run in (alone, together):
        finish(start(run))
    expected, losses = read_losses(alone), read_losses(together)
    assert list(losses) == list(expected)
    assert len(losses) > 8
    assert list(losses.values()) == pytest.approx(list(expected.values()), rel=1e-5)
    ours, theirs = (load_file(run / "model" / "adapter_model.safetensors") for run in (together, alone))
    for name, tensor in theirs.items():
        assert ours[name].tolist() == [pytest.approx(row, abs=1e-4) for row in tensor.tolist()], name
    seen = [
        max(event["values"].get("tokens_seen", 0) for event in read_events(run, "metric"))
        for run in (alone, together)
    ]
    assert seen[0] == seen[1]


@pytest.mark.long
def test_a_pause_reaches_all_and_a_resume_goes_on_exactly(
    tmp_path: Path, model: Path, examples: Path
) -> None:
    straight = write_run(tmp_path / "straight", model, examples, batch_size=4, processes=2, epochs=8)
    paused = write_run(tmp_path / "paused", model, examples, batch_size=4, processes=2, epochs=8)
    finish(start(straight))
    process = start(paused)
    wait_for_step(paused, 3, process)
    ControlFile(paused).want("pause")
    finish(process)
    assert not (paused / "model").exists()
    ControlFile(paused).want("run")
    finish(start(paused, "--resume"))
    assert read_losses(paused) == read_losses(straight)


@pytest.mark.long
def test_when_one_is_killed_the_others_end_and_say_so(tmp_path: Path, model: Path, examples: Path) -> None:
    run = write_run(tmp_path / "run", model, examples, batch_size=4, processes=2, epochs=5_000)
    process = start(run)
    wait_for_step(run, 2, process)
    (companion,) = companions_of(process)
    os.kill(companion, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "lost another of the 2 processes" in errors
    assert not lives(companion)


def test_a_process_that_nobody_joins_says_so_in_a_sentence(
    tmp_path: Path, model: Path, examples: Path
) -> None:
    from gpubloom.engine.parallel import join

    alone = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    with pytest.raises(ValueError, match=r"did not find each other at 127\.0\.0\.1:9 within 1 s"):
        join(alone, on_gpu=False, seconds=1.0)
    with pytest.raises(ValueError, match="RANK is 2, but WORLD_SIZE is 2"):
        join({**alone, "RANK": "2"}, on_gpu=False)
