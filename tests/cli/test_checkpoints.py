"""`bloom runs checkpoints` and `bloom jobs checkpoints`: what was saved, and how it was trained."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.traincard import Reporter

SAID = {
    "training_seconds": 75.0,
    "parameters": 7_600_000_000,
    "trained_parameters": 40_400_000,
    "method": "lora",
    "precision": "bf16",
    "optimizations": ["compiled layers", "chunked loss"],
}


def _bloom(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.stdout


def _saved(folder: Path) -> Path:
    with Reporter(folder, telemetry_seconds=0) as reporter:
        reporter.checkpoint("a", {"size": 1_000_000}, step=5, metrics={"eval/loss": 2.5})
        reporter.checkpoint("b", {"size": 2_000_000, **SAID}, step=10, metrics={"eval/loss": 1.25})
    return folder


def test_a_run_lists_its_checkpoints_with_time_parameters_and_optimizations(tmp_path: Path) -> None:
    newest, older = _bloom("runs", "checkpoints", str(_saved(tmp_path / "run"))).split("step 5")
    assert newest.splitlines() == [
        "step 10  eval loss 1.25  2.0 MB  best",
        "  trained for 1 min 15 s · 40.4 M of 7.60 B parameters trained · lora · bf16",
        "  compiled layers · chunked loss",
    ]
    assert older.splitlines() == ["  eval loss 2.5  1.0 MB"]


def test_checkpoints_are_also_json(tmp_path: Path) -> None:
    entries = json.loads(_bloom("runs", "checkpoints", str(_saved(tmp_path / "run")), "--json"))
    assert [(entry["step"], entry["best"]) for entry in entries] == [(10, True), (5, False)]
    assert entries[0]["metadata"] == SAID


def test_a_job_lists_its_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    item: dict[str, Any] = {"step": 10, "metrics": {"eval/loss": "NaN"}, "size": None, "best": False}
    answer = {"items": [{**item, "details": SAID}], "facts": {}}
    monkeypatch.setattr("gpubloom.cli.jobs.call", lambda *_: answer)
    shown = _bloom("jobs", "checkpoints", "00000000-0000-0000-0000-000000000001")
    assert shown.startswith("step 10  eval loss NaN\n  trained for 1 min 15 s")
    monkeypatch.setattr("gpubloom.cli.jobs.call", lambda *_: {"items": [], "facts": {}})
    assert "No checkpoint" in _bloom("jobs", "checkpoints", "00000000-0000-0000-0000-000000000001")
