"""Real frameworks, tiny models, and commands that arrive while they train."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import Reporter, RunEvent, read_all


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BLOOM_RUN_DIR", "BLOOM_ATTEMPT", "BLOOM_TRAINCARD", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def reporter(run_dir: Path) -> Iterator[Reporter]:
    reporter = Reporter(run_dir, telemetry_seconds=0)
    yield reporter
    reporter.close()


def events_of(run_dir: Path, kind: str) -> list[RunEvent]:
    return [event for event in read_all(run_dir) if event.kind == kind]


def series_of(run_dir: Path, name: str) -> list[tuple[int | None, float]]:
    """What readers see of one series: (step, value), in order."""
    return [
        (event.step, value)
        for event in read_all(run_dir)
        if event.kind == "metric"
        for found, value in event.series()
        if found == name
    ]


def phases_of(run_dir: Path) -> list[str]:
    return [event.fields["phase"] for event in events_of(run_dir, "phase")]


def last_refusals(run_dir: Path) -> dict[str, str]:
    refused: Any = events_of(run_dir, "applied")[-1].fields.get("refused") or {}
    return dict(refused)


At = Callable[[int], None]
