"""What a job's summary says about its run."""

import math
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter, RunEvent, load_latest
from gpubloom.worker.summary import MOST_WARNINGS, add_warnings, summarize


def _log(line: str, level: str = "warning", attempt: int = 1) -> RunEvent:
    return RunEvent(attempt, 0, 0, 0.0, "log", None, {"kind": "log", "line": line, "level": level})


def test_warnings_and_errors_are_kept_once_however_often_a_restart_repeats_them() -> None:
    summary: dict[str, object] = {}
    add_warnings(summary, [_log("rows dropped"), _log("a processor", "info"), _log("disk\0 full", "error")])
    add_warnings(summary, [_log("rows dropped", attempt=2)])
    assert summary == {
        "warnings": [
            {"level": "warning", "line": "rows dropped", "attempt": 1},
            {"level": "error", "line": "disk full", "attempt": 1},
        ]
    }


def test_a_run_that_warns_without_end_is_counted_not_kept() -> None:
    summary: dict[str, object] = {}
    add_warnings(summary, [_log(f"warning {number}") for number in range(MOST_WARNINGS + 5)])
    kept = summary["warnings"]
    assert isinstance(kept, list)
    assert (len(kept), kept[0]["line"], summary["warningsLeftOut"]) == (MOST_WARNINGS, "warning 0", 5)


@pytest.mark.parametrize(
    ("value", "name"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_a_value_that_is_no_number_keeps_its_name_in_the_summary(
    tmp_path: Path, value: float, name: str
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.describe({"loss_scale": value})
        reporter.metric("train/loss", value, 3)
    summary = summarize({}, load_latest(tmp_path), 0)
    assert summary["values"]["train/loss"] == {"step": 3, "value": name}
    assert summary["facts"]["loss_scale"] == name
