"""Calls with the wrong thing, copies in other processes, cells that run twice: the loop goes on."""

import builtins
import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.traincard import Reading, Reporter, snapshot
from tests.traincard.conftest import events_of

Open = Callable[..., Reporter]


def test_wrong_arguments_cost_a_warning_and_nothing_else(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    run = open_reporter(capture=False)
    run.metrics(None, 1)  # type: ignore[arg-type]
    run.metrics(None, 2)  # type: ignore[arg-type]
    run.system(None)  # type: ignore[arg-type]
    run.describe(7)  # type: ignore[arg-type]
    run.checkpoint(None)  # type: ignore[arg-type]
    run.checkpoint_removed(None)  # type: ignore[arg-type]
    run.error("the data is gone")
    run.metric("loss", 1.0, 3)
    run.close()
    assert [event.kind for event in events_of(run_dir)] == ["start", "error", "metric", "end"]
    assert events_of(run_dir, "error")[0].fields["message"] == "the data is gone"
    assert len([record for record in caplog.records if "nothing is recorded" in record.message]) == 5


def test_an_event_with_a_wrong_value_is_left_out_and_the_run_stays_readable(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    run = open_reporter(capture=False)
    run.resumed("ten")  # type: ignore[arg-type]
    run.progress(1, "many")  # type: ignore[arg-type]
    run.heartbeat("soon")  # type: ignore[arg-type]
    run.phase(["train"])  # type: ignore[arg-type]
    run.metric("loss", 1.0, 3)
    run.flush()
    assert snapshot(run_dir)["status"]["step"] == 3
    run.close()
    shown = snapshot(run_dir)["status"]
    assert shown["step"] == 3
    assert shown["dropped"] == {"heartbeat": 1, "phase": 1, "progress": 1, "resumed": 1}
    assert "from_step must be a number, not 'ten'" in caplog.text


def test_a_total_that_is_infinite_counts_as_unknown(run_dir: Path, open_reporter: Open) -> None:
    run = open_reporter(capture=False)
    run.progress(3, float("inf"), float("nan"), 2.0)  # type: ignore[arg-type]
    run.close()
    shown = snapshot(run_dir)["status"]
    assert (shown["step"], shown["total_steps"], shown["epoch"], shown["epochs"]) == (3, None, None, 2.0)


def test_a_status_that_is_no_text_still_ends_the_run(run_dir: Path, open_reporter: Open) -> None:
    run = open_reporter(capture=False)
    run.finish(7)  # type: ignore[arg-type]
    run.close()
    assert snapshot(run_dir)["status"]["status"] == "7"


def test_long_messages_and_facts_are_cut(run_dir: Path, open_reporter: Open) -> None:
    run = open_reporter()
    run.describe({"long": "x" * 100_000, "nested": {"list": ["y" * 100] * 1000}, "short": 5})
    run.on_exception(ValueError("z" * 100_000))
    run.close()
    facts = events_of(run_dir, "describe")[0].fields["facts"]
    assert len(facts["long"]) < 5_000
    assert len(str(facts["nested"])) < 5_000
    assert facts["short"] == 5
    assert len(events_of(run_dir, "error")[0].fields["message"]) < 10_000
    assert len(events_of(run_dir, "end")[0].fields["message"]) < 10_000


def test_a_copy_in_another_process_is_silent_and_one_in_this_process_is_the_same(
    run_dir: Path, open_reporter: Open
) -> None:
    run = open_reporter()
    assert copy.deepcopy({"reporter": run})["reporter"] is run
    other = pickle.loads(pickle.dumps(run))
    assert (other.run_dir, other.is_on) == (run_dir, False)
    other.metric("loss", 1.0, 1)
    run.close()
    assert events_of(run_dir, "metric") == []


def test_a_cell_that_runs_again_is_a_new_attempt(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    for _ in range(2):
        run = open_reporter()
        run.metric("loss", 1.0, 1)
    assert run.is_on
    run.close()
    assert [(event.attempt, event.kind) for event in events_of(run_dir)] == [
        (attempt, kind) for attempt in (1, 2) for kind in ("start", "metric", "end")
    ]


def test_a_second_reporter_of_a_script_says_what_to_do(
    run_dir: Path, open_reporter: Open, caplog: pytest.LogCaptureFixture
) -> None:
    open_reporter()
    assert not open_reporter().is_on
    assert "HFTrainCardCallback(reporter)" in caplog.text


def test_the_phase_of_a_loop_that_only_reports_metrics_is_train(run_dir: Path, open_reporter: Open) -> None:
    run = open_reporter()
    run.flush()
    assert snapshot(run_dir)["status"]["phase"] is None
    run.metric("loss", 1.0, 1)
    run.flush()
    assert snapshot(run_dir)["status"]["phase"] == "train"
    run.phase("eval")
    run.metric("eval_loss", 1.0, 2)
    run.flush()
    assert snapshot(run_dir)["status"]["phase"] == "eval"


def test_only_a_loop_that_looks_for_commands_is_offered_any(run_dir: Path, open_reporter: Open) -> None:
    run = open_reporter()
    run.metric("loss", 1.0, 1)
    run.flush()
    reading = Reading(run_dir)
    reading.update()
    assert not reading.state.listens
    run.control.poll()
    run.control.poll()
    run.flush()
    reading.update()
    assert reading.state.listens
    assert len(events_of(run_dir, "listening")) == 1


def test_the_traceback_of_an_earlier_attempt_stays(run_dir: Path, open_reporter: Open) -> None:
    first = open_reporter()
    try:
        raise ValueError("first")
    except ValueError as problem:
        first.on_exception(problem)
    first.close()
    second = open_reporter()
    second.metric("loss", 1.0, 1)
    second.finish()
    second.close()
    shown = snapshot(run_dir)
    assert shown["failure"] is None
    assert [attempt["error"] and attempt["error"]["type"] for attempt in shown["attempts"]] == [
        "ValueError",
        None,
    ]
    assert 'raise ValueError("first")' in shown["attempts"][0]["error"]["traceback"]
