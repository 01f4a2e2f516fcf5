"""What the end of an attempt means for its job."""

from dataclasses import replace

import pytest

from gpubloom.agent.spec import ExitRecord
from gpubloom.worker.attempt_outcome import Ending, judge
from gpubloom.worker.disk import Code, DiskFault

EXIT = ExitRecord(
    attempt=1, code=0, signal=None, reason="ended", started_at=1.0, ended_at=2.0, output_dropped_bytes=0
)
KILLED = replace(EXIT, code=None, signal=9)
RUNNING = Ending(
    status="running",
    exit=EXIT,
    said="completed",
    is_finished=False,
    error=None,
    last_line=None,
    has_newer_checkpoint=False,
    attempts_without_progress=0,
    max_attempts=3,
    directory_exists=True,
)


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({}, "complete"),
        # It finished before the command reached it.
        ({"status": "pausing"}, "complete"),
        ({"status": "cancelling"}, "complete"),
        ({"status": "cancelling", "said": "cancelled"}, "stop"),
        ({"status": "cancelling", "said": None, "exit": KILLED}, "stop"),
        ({"status": "pausing", "said": "paused"}, "stop"),
        ({"status": "pausing", "said": "running", "exit": KILLED}, "stop"),
        ({"said": "running", "exit": KILLED}, "retry"),
        ({"said": "running", "exit": None}, "retry"),
        ({"said": "preempted", "exit": replace(EXIT, code=143)}, "retry"),
        ({"said": None, "exit": replace(EXIT, code=143, reason="stopped")}, "retry"),
        ({"said": "failed", "exit": replace(EXIT, code=1)}, "fail"),
        ({"said": None, "exit": replace(EXIT, code=2)}, "fail"),
        # A script that ended early without a word has not trained its model.
        ({"said": "ended"}, "fail"),
        ({"said": "running", "exit": KILLED, "attempts_without_progress": 2}, "fail"),
        (
            {"said": "running", "exit": KILLED, "attempts_without_progress": 2, "has_newer_checkpoint": True},
            "retry",
        ),
        ({"said": "running", "exit": None, "directory_exists": False}, "fail"),
        # Killed between the last file and the last word.
        ({"said": "running", "exit": KILLED, "is_finished": True}, "complete"),
        ({"said": None, "exit": replace(EXIT, code=None, reason="not_started", problem="no python")}, "fail"),
    ],
)
def test_an_end_is_judged(changes: dict[str, object], action: str) -> None:
    assert judge(replace(RUNNING, **changes)).action == action  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        # Nothing was recognised in what it printed; the code is enough.
        ({"said": None}, "complete"),
        ({"said": "running"}, "complete"),
        # It said so, and then it failed.
        ({"said": "completed", "exit": replace(EXIT, code=1)}, "fail"),
        # It saves and ends when it is told to, but nobody asked for that.
        ({"said": "preempted", "exit": replace(EXIT, reason="stopped")}, "retry"),
        ({"said": None, "exit": KILLED}, "retry"),
        ({"said": None, "exit": None}, "retry"),
        ({"said": None, "exit": None, "attempts_without_progress": 2}, "fail"),
        ({"status": "pausing", "exit": replace(EXIT, code=None, signal=15, reason="stopped")}, "stop"),
        ({"status": "cancelling", "exit": KILLED}, "stop"),
        ({"status": "cancelling", "said": None}, "complete"),
        ({"exit": replace(EXIT, reason="time_limit")}, "fail"),
    ],
)
def test_the_end_of_a_script_goes_by_its_exit_code(changes: dict[str, object], action: str) -> None:
    assert judge(replace(RUNNING, kind="script", **changes)).action == action  # type: ignore[arg-type]


def test_an_error_of_the_training_is_told_in_its_own_words() -> None:
    error = {"type": "FloatingPointError", "message": "The loss is nan.", "advice": "Lower the rate."}
    verdict = judge(replace(RUNNING, said="failed", exit=replace(EXIT, code=1), error=error))
    assert verdict.message == "FloatingPointError: The loss is nan. Lower the rate."
    # The sentence of our own trainer says what to do; a second piece of advice may contradict it.
    own = {**error, "code": "not_finite", "message": "The loss is nan: start again with a lower rate."}
    verdict = judge(replace(RUNNING, said="failed", exit=replace(EXIT, code=1), error=own))
    assert (verdict.code, verdict.message) == ("not_finite", own["message"])


def test_wrong_input_is_told_as_the_sentence_it_is() -> None:
    ending = replace(RUNNING, said=None, exit=replace(EXIT, code=2), last_line="There is no file x.")
    assert (judge(ending).code, judge(ending).message) == ("training_failed", "There is no file x.")


def test_the_code_of_a_refusal_becomes_the_code_of_the_job() -> None:
    line = "error[data_not_found]: There is no file x."
    ending = replace(RUNNING, said=None, exit=replace(EXIT, code=2), last_line=line)
    assert (judge(ending).code, judge(ending).message) == ("data_not_found", "There is no file x.")
    # What a script of somebody prints means nothing to us.
    script = judge(replace(ending, kind="script"))
    assert (script.code, script.message) == ("script_failed", line)


def test_an_error_with_a_code_is_told_without_its_type() -> None:
    error = {"type": "gpubloom.engine.loss.NotFinite", "message": "The loss is nan.", "code": "not_finite"}
    ending = replace(RUNNING, said="failed", exit=replace(EXIT, code=1), error=error)
    assert (judge(ending).code, judge(ending).message) == ("not_finite", "The loss is nan.")
    odd = judge(replace(ending, error={**error, "code": "Not A Code"}))
    assert odd.code == "training_failed"


@pytest.mark.parametrize(
    ("code", "confirmed", "action", "without_progress"),
    [
        ("disk_full", True, "retry", 2),
        ("disk_full", False, "retry", 2),
        ("disk_read_only", True, "retry", 2),
        ("disk_failing", True, "retry", 2),
        # The disk can be written: the error may come from a file that only this job uses.
        ("disk_failing", False, "fail", 3),
    ],
)
@pytest.mark.parametrize("exit_record", [None, replace(EXIT, code=1), KILLED])
def test_a_fault_of_the_disk_is_not_counted_as_one_of_the_job(
    exit_record: ExitRecord | None, code: Code, confirmed: bool, action: str, without_progress: int
) -> None:
    ended = replace(RUNNING, said="failed", exit=exit_record, attempts_without_progress=2)
    verdict = judge(replace(ended, disk_fault=DiskFault(code), disk_fault_confirmed=confirmed))
    assert (verdict.action, verdict.attempts_without_progress) == (action, without_progress)
    assert (verdict.code, verdict.waiting is None) == ((code, True) if action == "fail" else (None, False))


def test_a_fault_of_the_disk_keeps_no_job_from_the_end_that_was_asked_for() -> None:
    fault = replace(RUNNING, said="failed", disk_fault=DiskFault("disk_full"), disk_fault_confirmed=True)
    assert judge(replace(fault, status="cancelling")).action == "stop"
    assert judge(replace(fault, status="pausing")).action == "stop"
    assert judge(replace(fault, said="completed")).action == "complete"
