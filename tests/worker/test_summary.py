"""What a job's summary keeps of its run's log."""

from gpubloom.traincard import RunEvent
from gpubloom.worker.summary import MOST_WARNINGS, add_warnings


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
