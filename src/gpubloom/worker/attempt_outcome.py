"""Decides what the end of an attempt means for its job. Pure: facts in, decision out."""

from dataclasses import dataclass
from typing import Any, Literal

from gpubloom.agent.spec import ExitRecord
from gpubloom.errors import UNKNOWN, is_code, read_error_line
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS, Kind, Status
from gpubloom.server.schema import storable
from gpubloom.worker.disk import DiskFault

_LONGEST_MESSAGE = 2_000
DIRECTORY_GONE = "The run directory is gone."
# The exit code of our trainer for invalid input; the last log line is the error.
_WRONG_INPUT = 2
_FAILED: dict[Kind, str] = {"train": "training_failed", "script": "script_failed"}


@dataclass(frozen=True)
class Ending:
    """All that is known about an attempt after all its processes have ended."""

    status: Status
    exit: ExitRecord | None
    # The last state that the run reported, if this attempt reported it.
    said: str | None
    # Whether the model of a training or the result of a task exists. Both are written atomically.
    is_finished: bool
    error: dict[str, Any] | None
    last_line: str | None
    has_newer_checkpoint: bool
    attempts_without_progress: int
    max_attempts: int
    directory_exists: bool
    kind: Kind = "train"
    # The fault of this machine's disk that ended it, and whether a probe of the disk finds it, too.
    disk_fault: DiskFault | None = None
    disk_fault_confirmed: bool = False
    # Why the server rejected what the rented machine sent.
    refused: str | None = None


@dataclass(frozen=True)
class Verdict:
    """How the job moves, and what its owner is told."""

    action: Literal["complete", "fail", "stop", "retry"]
    attempts_without_progress: int = 0
    code: str | None = None
    message: str | None = None
    # Why the job has to wait before the next attempt.
    waiting: str | None = None


def judge(ending: Ending) -> Verdict:
    """An attempt that ended for external reasons is retried; one that ended with its own error is not."""
    if ending.refused is None and _is_complete(ending):
        return Verdict("complete")
    if ending.status == "cancelling":
        return Verdict("stop")
    if ending.refused is not None:
        # No earlier report of such a machine is trusted, and another attempt would send the same.
        return Verdict("fail", code="refused_data", message=message_of(ending.refused))
    if not ending.directory_exists:
        return Verdict("fail", code="directory_gone", message=DIRECTORY_GONE)
    if ending.status == "pausing":
        # Paused as requested, or ended before it could pause: both resume from the newest checkpoint.
        return Verdict("stop")
    if ending.disk_fault is not None:
        return judge_disk_fault(
            ending.disk_fault,
            confirmed=ending.disk_fault_confirmed,
            has_newer_checkpoint=ending.has_newer_checkpoint,
            attempts_without_progress=ending.attempts_without_progress,
            max_attempts=ending.max_attempts,
        )
    if ending.exit is not None and ending.exit.reason == "not_started":
        return _failed(ending, "not_started")
    if ending.exit is not None and ending.exit.reason == "time_limit":
        return _failed(ending, "time_limit")
    # Told to stop by somebody other than the job's owner: a signal from outside, a machine that shuts down.
    outside = {"preempted", "paused", "interrupted"} if ending.kind in TOP_LEVEL_KINDS else {"cancelled"}
    preempted = ending.said in outside or (ending.exit is not None and ending.exit.reason == "stopped")
    if ending.exit is not None and ending.exit.code is not None and not preempted:
        return _failed(ending, _FAILED.get(ending.kind, "task_failed"))
    without_progress = 0 if ending.has_newer_checkpoint else ending.attempts_without_progress + 1
    if without_progress >= ending.max_attempts:
        how = (
            "The agent ended without recording how the job ended."
            if ending.exit is None
            else ending.exit.sentence
        )
        times = "once" if without_progress == 1 else f"{without_progress} times in a row"
        return Verdict(
            "fail",
            without_progress,
            code="too_many_attempts",
            message=message_of(
                f"{how} This happened {times}"
                + (" without a newer checkpoint." if ending.kind in TOP_LEVEL_KINDS else ".")
            ),
        )
    return Verdict("retry", without_progress)


def judge_disk_fault(
    fault: DiskFault,
    *,
    confirmed: bool,
    has_newer_checkpoint: bool,
    attempts_without_progress: int,
    max_attempts: int,
) -> Verdict:
    """Try it again, uncounted: the machine is at fault, not the job.

    An error of a disk that a probe can write may come from a file that only this job uses, on another disk.
    It is counted, so that it has an end. A lack of space never is: it ends when somebody frees some.
    """
    without_progress = 0 if has_newer_checkpoint else attempts_without_progress
    if not (confirmed or has_newer_checkpoint or fault.code == "disk_full"):
        without_progress += 1
    if without_progress >= max_attempts:
        return Verdict(
            "fail",
            without_progress,
            code=fault.code,
            message=f"{fault.sentence} Number of attempts: {without_progress}.",
        )
    return Verdict("retry", without_progress, waiting=fault.for_owner)


def _is_complete(ending: Ending) -> bool:
    if ending.kind == "script":
        # Whatever was printed or reported: a script that is done ends with 0, by itself.
        return ending.exit is not None and ending.exit.reason == "ended" and ending.exit.code == 0
    # Killed right after the last file was written: there was nothing left to do.
    return ending.said == "completed" or (
        ending.is_finished and (ending.exit is None or ending.exit.signal is not None)
    )


def _failed(ending: Ending, code: str) -> Verdict:
    if ending.error is not None:
        # Whoever wrote latest.json may have put anything there.
        kind, message, advice = (
            value if isinstance(value := ending.error.get(name), str) else None
            for name in ("type", "message", "advice")
        )
        if ending.kind != "script" and is_code(own := ending.error.get("code")):
            # An error of our own trainer is already a sentence for the user, and says what to do.
            code, kind, advice = own, None, None
        said = f"{kind}: {message}" if kind else message
        sentence = " ".join(part for part in (said, advice) if part) or "The run ended with an error."
    else:
        how = "The training process ended." if ending.exit is None else ending.exit.sentence
        refused = ending.exit is not None and ending.exit.code == _WRONG_INPUT
        if refused and ending.last_line:
            sentence = ending.last_line
            # Scripts of other people may print anything.
            if ending.kind != "script" and (problem := read_error_line(sentence)).code != UNKNOWN:
                code, sentence = problem.code, str(problem)
        else:
            sentence = f"{how} Last log line: {ending.last_line}" if ending.last_line else how
    return Verdict("fail", code=code, message=message_of(sentence))


def message_of(text: str) -> str:
    """A sentence for a job's row; a training may print anything."""
    return storable(text)[:_LONGEST_MESSAGE]
