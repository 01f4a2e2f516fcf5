"""Real files and real processes for the TrainCard's tests."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter, RunEvent, read_all

StartScript = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _no_outside_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("BLOOM_RUN_DIR", "BLOOM_ATTEMPT", "BLOOM_JOB_ID", "BLOOM_TRAINCARD")
    for name in (*ours, "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def open_reporter(run_dir: Path) -> Iterator[Callable[..., Reporter]]:
    """Opens Reporters without telemetry and closes them after the test."""
    opened: list[Reporter] = []

    def start(directory: Path = run_dir, **options: object) -> Reporter:
        reporter = Reporter(directory, **{"telemetry_seconds": 0, **options})  # type: ignore[arg-type]
        opened.append(reporter)
        return reporter

    yield start
    for reporter in opened:
        reporter.close()


@pytest.fixture
def start_script(run_dir: Path, tmp_path: Path) -> Iterator[StartScript]:
    """Starts Python code as a process that reports to the test's run directory."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
            env={**os.environ, "BLOOM_RUN_DIR": str(run_dir), **environment},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def events_of(run_dir: Path, kind: str | None = None) -> list[RunEvent]:
    return [event for event in read_all(run_dir) if kind in {None, event.kind}]
