"""What a job's summary says about its run, whatever the run reports."""

import math
from pathlib import Path
from typing import Any

import pytest

from gpubloom.server.jobs.summary import (
    MOST_WARNINGS,
    RunSummary,
    StoredSummary,
    add_marks,
    add_warnings,
    read_run_report,
    read_summary,
    summarize,
    with_waiting,
)
from gpubloom.traincard import Reporter, RunEvent, load_latest


def _log(line: str, level: str = "warning", attempt: int = 1) -> RunEvent:
    return RunEvent(attempt, 0, 0, 0.0, "log", None, {"kind": "log", "line": line, "level": level})


def test_warnings_and_errors_are_kept_once_however_often_a_restart_repeats_them() -> None:
    summary = StoredSummary()
    add_warnings(summary, [_log("rows dropped"), _log("a processor", "info"), _log("disk\0 full", "error")])
    add_warnings(summary, [_log("rows dropped", attempt=2)])
    assert [(each.level, each.line, each.attempt) for each in summary.warnings] == [
        ("warning", "rows dropped", 1),
        ("error", "disk full", 1),
    ]


def test_a_finding_that_is_only_a_note_is_no_warning() -> None:
    summary = StoredSummary()
    for severity in ("info", "warning"):
        fields = {"line": severity, "level": "warning", "finding": {"kind": "k", "severity": severity}}
        add_warnings(summary, [RunEvent(1, 0, 0, 0.0, "log", None, fields)])
    assert [each.line for each in summary.warnings] == ["warning"]


def test_a_run_that_warns_without_end_is_counted_not_kept() -> None:
    summary = StoredSummary()
    add_warnings(summary, [_log(f"warning {number}") for number in range(MOST_WARNINGS + 5)])
    kept = summary.warnings
    assert (len(kept), kept[0].line, summary.warnings_left_out) == (MOST_WARNINGS, "warning 0", 5)


@pytest.mark.parametrize(
    ("value", "name"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_a_value_that_is_no_number_keeps_its_name_in_the_summary(
    tmp_path: Path, value: float, name: str
) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.describe({"loss_scale": value})
        reporter.metric("train/loss", value, 3)
    stored = summarize(StoredSummary(), load_latest(tmp_path), 0).dump()
    assert stored["values"]["train/loss"] == {"step": 3, "value": name}
    assert stored["facts"]["loss_scale"] == name


def test_the_run_says_its_part_and_the_rest_of_the_summary_stays(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.progress(7, 20)
    before = read_summary({"step": 3, "cost": {"so_far": 1.5}, "marks": [{"kind": "resumed", "step": 2}]})
    after = summarize(before, load_latest(tmp_path), 2)
    assert (after.step, after.total_steps, after.damaged_lines) == (7, 20, 2)
    assert (after.cost, after.marks) == (before.cost, before.marks)
    assert read_summary(after.dump()) == after


def test_settings_that_took_effect_and_resumptions_are_marked() -> None:
    summary = StoredSummary(step=4)
    applied = {"kind": "applied", "refused": {"clip_norm": "not supported"}}
    events = [
        RunEvent(2, 0, 1, 0.0, "resumed", None, {"kind": "resumed", "from_step": 3}),
        RunEvent(2, 0, 2, 0.0, "applied", None, applied),
    ]
    add_marks(summary, events, {"learning_rate": 0.25})
    resumed, changed = summary.marks
    assert (resumed.kind, resumed.attempt, resumed.step) == ("resumed", 2, 3)
    assert (changed.kind, changed.step, changed.settings) == ("applied", 4, {"learning_rate": 0.25})
    assert changed.refused == {"clip_norm": "not supported"}


# What a person's own script could report, or a row of an earlier version hold.
_STRANGE: list[dict[str, Any]] = [
    {name: value}
    for name in StoredSummary.model_fields
    for value in (
        None,
        "text",
        "NaN",
        3,
        -1.5,
        True,
        [1, "a", None, {}],
        {"a": 1, "b": None, "c": {"value": []}},
    )
]


@pytest.mark.parametrize("stored", _STRANGE, ids=str)
def test_whatever_is_stored_can_be_read_and_stored_again(stored: dict[str, Any]) -> None:
    summary = read_summary(stored)
    assert read_summary(summary.dump()) == summary
    assert RunSummary.model_validate_json(summary.model_dump_json()) is not None
    summarize(summary, stored, 0)


def test_a_wrong_value_reads_as_its_default_and_the_values_beside_it_stay() -> None:
    summary = read_summary(
        {
            "step": "many",
            "total_steps": 10,
            "values": {"train/loss": {"step": 1, "value": 2.5}, "note": {"value": "good"}, "odd": 3},
            "system": {"gpu": 0.5, "driver": "550.1"},
            "marks": ["resumed", {"kind": "resumed", "step": "first"}],
            "cost": {"so_far": 0.5, "estimated": {"likely": 1.0}, "gpus": "two"},
            "something": "else",
        }
    )
    assert (summary.step, summary.total_steps, summary.system) == (None, 10, {"gpu": 0.5})
    assert summary.values.keys() == {"train/loss"}
    assert [(mark.kind, mark.step) for mark in summary.marks] == [("resumed", 0)]
    assert summary.cost is not None
    assert (summary.cost.so_far, summary.cost.estimated, summary.cost.gpus) == (0.5, None, None)


def test_a_report_has_fields_of_its_own_for_rows_and_warnings() -> None:
    stored = {"facts": {"rows_used": 20, "rows_total": 120}, "warnings": [{"level": "error", "line": "x"}]}
    report = read_run_report(stored)
    assert (report.rows_used, report.rows_total, len(report.warnings)) == (20, 120, 1)
    assert read_run_report({"facts": {"rows_used": "all", "rows_total": 3}}).rows_total is None
    assert "warnings" not in RunSummary.model_fields


def test_why_a_job_waits_comes_and_goes() -> None:
    waiting = with_waiting({"step": 3}, "No GPU is free.")
    assert waiting == {"step": 3, "waiting": "No GPU is free."}
    assert with_waiting(waiting, None) == {"step": 3}
