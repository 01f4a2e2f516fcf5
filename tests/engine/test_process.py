"""A run's own train.py as a process: repeated, interrupted, killed, started twice, given wrong input."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.plan import Hardware, TrainConfig, plan, run_files
from tests.engine.runs import read_events, read_losses

MACHINE = Hardware(host_memory_bytes=8_000_000_000, cpu_cores=2)


@pytest.fixture
def write_run(tmp_path: Path, make_config: Callable[..., TrainConfig]) -> Callable[..., Path]:
    def write(name: str, **overrides: object) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        config = make_config(**overrides)
        for file, text in run_files(config, plan(config, MACHINE), "0").items():
            (folder / file).write_text(text, encoding="utf-8")
        return folder

    return write


def start(run: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(run / "train.py"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    events = run / "traincard" / "events.jsonl"
    while not (events.exists() and f'"step":{step},' in events.read_text()):
        assert process.poll() is None, f"ended before step {step}: {finish(process)}"
        assert time.monotonic() < deadline, f"step {step} did not come"
        time.sleep(0.02)


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


LONG = {"epochs": 5, "checkpoint": {"every_steps": 17}}


@pytest.mark.long
def test_killed_at_a_random_step_and_resumed_is_bit_identical(write_run: Callable[..., Path]) -> None:
    whole, killed = write_run("whole", **LONG), write_run("killed", **LONG)
    step = random.randint(20, 120)
    process = start(killed)
    wait_for_step(killed, step, process)
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert not (killed / "model").exists(), "it was over before it was killed"
    assert finish(start(killed, "--resume")) == (0, "")
    assert finish(start(whole)) == (0, "")
    assert 0 < read_events(killed, "resumed")[0]["from_step"] <= step + 40
    # Losses of both attempts are compared: read_losses refuses a repeated step with another value.
    assert read_losses(killed) == read_losses(whole)
    assert weights(killed) == weights(whole)


@pytest.mark.long
def test_ctrl_c_saves_and_a_repetition_in_another_folder_gives_the_same_result(
    write_run: Callable[..., Path],
) -> None:
    run = write_run("run", **LONG)
    process = start(run)
    wait_for_step(run, 10, process)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (0, "")
    end = read_events(run, "end")[-1]
    last_step = max(read_losses(run))
    assert end["status"] == "paused"
    assert (run / "checkpoints" / f"step-{last_step:08d}").is_dir()

    repetition = run.parent / "again"
    again = start(run, "--into", str(repetition))
    assert finish(start(run, "--resume")) == (0, "")
    assert finish(again) == (0, "")
    assert weights(run) == weights(repetition)

    code, sentence = finish(start(run, "--resume"))
    assert code == 2
    assert "is already complete" in sentence


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_was_killed_before_its_last_event_is_completed_by_a_resume(
    write_run: Callable[..., Path], processes: int
) -> None:
    run = write_run("run", epochs=1, processes=processes)
    script = run / "train.py"
    text = script.read_text()
    killed = (
        "import os; session.reporter.finish = lambda *given: os.kill(os.getpid(), 9)\n        trainer.train"
    )
    script.write_text(text.replace("trainer.train", killed))
    code, _ = finish(start(run))
    if processes == 1:
        assert code == -signal.SIGKILL
        assert not read_events(run, "end")
        assert finish(start(run, "--resume")) == (0, "")
    else:
        # The launcher starts the processes again by itself.
        assert code == 0
    assert [event["status"] for event in read_events(run, "end")][-1] == "completed"
    assert json.loads((run / "traincard" / "latest.json").read_text())["status"] == "completed"

    code, sentence = finish(start(run, "--resume"))
    assert code == 2
    assert "is already complete" in sentence


@pytest.mark.long
def test_a_second_trainer_in_one_directory_is_refused(write_run: Callable[..., Path]) -> None:
    run = write_run("run", epochs=1000)
    first = start(run)
    try:
        wait_for_step(run, 1, first)
        code, sentence = finish(start(run, "--resume"))
        assert code == 2
        assert f"is in use: process {first.pid}" in sentence
        assert sentence.count("\n") == 1
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGTERM)
        code, _ = finish(first)
    assert code == 0
    assert [event["status"] for event in read_events(run, "end")] == ["preempted", "preempted"]
    assert read_events(run, "checkpoint"), "SIGTERM saves before it ends"


@pytest.mark.long
def test_a_refusal_is_one_sentence_and_touches_nothing(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "noise.txt").write_bytes(bytes(range(256)) * 100)
    run = write_run("run", data={"train_path": str(tmp_path / "noise.txt")})
    code, sentence = finish(start(run))
    assert (code, sentence.count("\n")) == (2, 1)
    assert "noise.txt is a binary file" in sentence
    assert not (run / "checkpoints").exists()
    code, sentence = finish(start(run))
    assert code == 2
    assert "continue that run with --resume" in sentence
