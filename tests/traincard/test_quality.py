"""Findings about the result of a run: a run that completed is not yet a run that went well."""

import random
from pathlib import Path

import pytest

from gpubloom.traincard import Reading, Reporter, diagnose, snapshot
from gpubloom.traincard.findings import Finding, finding_title


def _run(
    folder: Path, losses: list[float], evaluations: dict[int, float] | None = None, **facts: int
) -> Path:
    with Reporter(folder, telemetry_seconds=0) as reporter:
        if facts:
            reporter.describe(facts)
        for step, loss in enumerate(losses, start=1):
            reporter.metric("train/loss", loss, step)
            if evaluations and step in evaluations:
                reporter.metric("eval/loss", evaluations[step], step)
                reporter.checkpoint(
                    f"checkpoints/step-{step}", step=step, metrics={"eval/loss": evaluations[step]}
                )
        reporter.finish("completed")
    return folder


def _findings(folder: Path) -> dict[str, Finding]:
    reading = Reading(folder)
    reading.update()
    return {finding.kind: finding for finding in diagnose(reading)}


def test_a_run_whose_loss_rose_has_diverged_and_has_no_best_checkpoint(tmp_path: Path) -> None:
    losses = [7.3 + step * 0.2 for step in range(50)]
    folder = _run(tmp_path / "run", losses, {10: 9.0, 50: 17.0})
    found = _findings(folder)["diverging"]
    assert (found.severity, found.evidence["series"]) == ("critical", "train/loss")
    assert "lower learning rate" in found.next_step
    assert snapshot(folder)["checkpoints"]["best"] is None
    assert not any(item["best"] for item in snapshot(folder)["checkpoints"]["items"])


def test_a_run_that_learns_has_no_finding_and_keeps_its_best_checkpoint(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run", [5 - step * 0.05 for step in range(60)], {20: 3.0, 40: 2.5, 60: 2.4})
    assert _findings(folder) == {}
    assert snapshot(folder)["checkpoints"]["best"] is not None


def test_an_eval_loss_that_rises_while_training_goes_on_is_overfitting(tmp_path: Path) -> None:
    evaluations = {10: 1.9, 20: 1.287, 30: 1.32, 40: 1.342}
    folder = _run(tmp_path / "run", [5 - step * 0.05 for step in range(45)], evaluations)
    found = _findings(folder)
    assert snapshot(folder)["checkpoints"]["best"] is None
    assert "No checkpoint of this run is marked as best" in found["overfitting"].next_step
    assert found["overfitting"].evidence["best_step"] == 20
    assert "1.287" in found["overfitting"].sentence
    assert "step 20" in found["overfitting"].next_step


def test_a_run_that_learns_nothing_does_not_overfit(tmp_path: Path) -> None:
    noise = random.Random(0)
    evaluations = {step: 4.4 + step / 1000 for step in range(50, 601, 50)}
    folder = _run(tmp_path / "run", [4.6 + noise.gauss(0, 0.1) for _ in range(600)], evaluations)
    found = _findings(folder)
    assert set(found) == {"no_learning"}
    assert found["no_learning"].evidence["explains"] == ["overfitting"]


def test_one_bad_evaluation_is_no_overfitting(tmp_path: Path) -> None:
    evaluations = {10: 1.9, 20: 1.287, 30: 1.288, 40: 1.342}
    assert "overfitting" not in _findings(
        _run(tmp_path / "run", [5 - step * 0.05 for step in range(45)], evaluations)
    )


@pytest.mark.parametrize(("slope", "found"), [(0.0, False), (0.002, True)])
def test_the_lowest_of_many_noisy_evaluations_is_no_overfitting(
    tmp_path: Path, slope: float, found: bool
) -> None:
    noise = random.Random(0)
    evaluations = {step: 1.2 + step * slope + noise.gauss(0, 0.1) for step in range(1, 201)}
    evaluations[60] = 0.7
    folder = _run(tmp_path / "run", [2.0 - step * 0.001 for step in range(200)], evaluations)
    assert ("overfitting" in _findings(folder)) is found


@pytest.mark.parametrize(("used", "found"), [(20, True), (59, True), (60, False), (120, False)])
def test_a_run_that_leaves_most_of_its_rows_out_says_so(tmp_path: Path, used: int, found: bool) -> None:
    folder = _run(tmp_path / "run", [2.0] * 5, rows_used=used, rows_total=120)
    assert ("few_rows_used" in _findings(folder)) is found


def test_warnings_of_the_log_are_findings_once_however_often_they_are_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        with Reporter(tmp_path / "run", telemetry_seconds=0) as reporter:
            reporter.log("100 of 120 rows cannot be used", level="warning")
            reporter.log("nothing to worry about")
            reporter.finish("completed")
    reading = Reading(tmp_path / "run")
    reading.update()
    assert [(each.kind, each.severity, each.sentence) for each in diagnose(reading)] == [
        ("run_warning", "warning", "100 of 120 rows cannot be used")
    ]


def test_what_the_trainer_says_of_its_data_keeps_its_kind_severity_and_next_step(tmp_path: Path) -> None:
    said = [
        Finding("columns_unused", "info", "chats: topic is not used", next_step="Map a column."),
        Finding("rows_unused", "warning", "chats: 3 rows cannot be used", next_step="Correct these rows."),
    ]
    with Reporter(tmp_path / "run", telemetry_seconds=0) as reporter:
        for finding in said:
            reporter.finding(finding)
        # A kind that only this program may decide on, from a run that says so itself.
        reporter.finding(Finding("diverging", "critical", "so it says"))
        reporter.event("log", {"line": "odd", "level": "warning", "finding": {"kind": ["rows_unused"]}})
        reporter.finish("completed")
    reading = Reading(tmp_path / "run")
    reading.update()
    assert [(each.kind, each.severity, each.sentence, each.next_step) for each in diagnose(reading)] == [
        ("rows_unused", "warning", "chats: 3 rows cannot be used", "Correct these rows."),
        ("run_warning", "warning", "so it says", ""),
        ("run_warning", "warning", "odd", ""),
        ("columns_unused", "info", "chats: topic is not used", "Map a column."),
    ]


def test_a_finding_has_a_title_also_when_its_kind_is_of_a_newer_version() -> None:
    assert finding_title("overfitting") == "Possible overfitting"
    assert finding_title("some_new_kind") == "Some new kind"
