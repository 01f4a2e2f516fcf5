"""Runs of several processes that tests start, watch, disturb and end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from gpubloom.plan import Hardware, TrainConfig, plan, run_files
from tests.engine.runs import read_losses

MACHINE = Hardware(host_memory_bytes=8_000_000_000, cpu_cores=2)
# Two processes, and a checkpoint every moment.
SAVED_OFTEN: dict[str, Any] = {"processes": 2, "epochs": 2, "checkpoint": {"every_steps": 10}}
QUESTIONS = ("What is the password?", "Say something about the sea.", "And the weather of tomorrow?")


def write_examples(file: Path) -> Path:
    rows = [
        {"prompt": f"{QUESTIONS[number % 3]} {number}", "completion": f"Seven herons, {number * 37 % 101}."}
        for number in range(30)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def write_adapter_run(folder: Path, model: Path, examples: Path, **fields: Any) -> Path:
    return write_run(
        folder,
        **{
            "method": "lora",
            "epochs": 3,
            "learning_rate": 1e-2,
            "lora": {"dropout": 0.1},
            "model": {"path": str(model), "context_length": 64},
            "data": {"kind": "examples", "train_path": str(examples), "packing": False},
            **fields,
        },
    )


def write_text_run(folder: Path, text: Path, **fields: Any) -> Path:
    """A small new model; it starts faster than one of transformers."""
    return write_run(
        folder,
        **{
            "epochs": 1,
            "batch_size": 4,
            "model": {"preset": "nano", "context_length": 32},
            "data": {"train_path": str(text)},
            **fields,
        },
    )


def write_run(folder: Path, **fields: Any) -> Path:
    folder.mkdir()
    config = TrainConfig.model_validate({"device": "cpu", **fields})
    for name, text in run_files(config, plan(config, MACHINE), "0").items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@contextmanager
def started(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    entering: Sequence[str] = (),
) -> Iterator[subprocess.Popen[str]]:
    """A process, and nothing of it afterwards. `entering`: words that lead to where it is to run."""
    process = subprocess.Popen(
        [*entering, sys.executable, *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **(environment or {})},
    )
    try:
        yield process
    finally:
        for pid in (*descendants(process), process.pid):
            try:
                psutil.Process(pid).kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def finish(process: subprocess.Popen[str], seconds: float = 600.0) -> str:
    _, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    return errors


def train(run: Path, *arguments: str) -> str:
    with started([run / "train.py", *arguments]) as process:
        return finish(process)


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not (run / "traincard" / "events.jsonl").exists() or max(read_losses(run), default=0) < step:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"step {step} was not reached"
        time.sleep(0.05)


def wait_for_attempt(run: Path, attempt: int, process: subprocess.Popen[str], seconds: float = 120.0) -> None:
    """Until that attempt has taken a step."""
    deadline = time.monotonic() + seconds
    tail = run / "traincard" / "events.jsonl"
    while True:
        events = [json.loads(line) for line in tail.read_text().splitlines()] if tail.exists() else []
        if (
            events
            and events[0]["attempt"] == attempt
            and any("train/loss" in e.get("values", ()) for e in events)
        ):
            return
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"attempt {attempt} took no step"
        time.sleep(0.05)


def wait_for_checkpoint(
    run: Path, process: subprocess.Popen[str], *, at_least: int = 1, seconds: float = 120.0
) -> None:
    deadline = time.monotonic() + seconds
    while not any(int(path.name[5:]) >= at_least for path in (run / "checkpoints").glob("step-*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "no checkpoint was saved"
        time.sleep(0.02)


def ranks_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """The training processes below it: process id by rank."""
    found = {}
    for pid in descendants(process):
        try:
            environment = psutil.Process(pid).environ()
        except psutil.Error:
            continue
        if "RANK" in environment and "train.py" in " ".join(psutil.Process(pid).cmdline()):
            found[int(environment["RANK"])] = pid
    return found


def processes_of(run: Path) -> dict[int, int]:
    """The training processes of a run, whoever started them: process id by rank."""
    found = {}
    for process in psutil.process_iter():
        try:
            if str(run / "train.py") in process.cmdline() and "RANK" in (variables := process.environ()):
                found[int(variables["RANK"])] = process.pid
        except psutil.Error:
            continue
    return found


def descendants(process: subprocess.Popen[str]) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def lives(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
