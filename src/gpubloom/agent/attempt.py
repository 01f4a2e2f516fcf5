"""One attempt, from the lock to the exit record.

Each attempt runs at most once, and never two at a time: the lock decides who may, the files under it whether
there is anything left to do. An agent that is refused touches nothing.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpubloom.agent.environment import training_environment
from gpubloom.agent.file_lock import hold, is_still_at
from gpubloom.agent.files import AgentFiles, AgentRecord
from gpubloom.agent.output import OutputLog
from gpubloom.agent.processes import adopt_orphans
from gpubloom.agent.progress.follower import OutputFollower
from gpubloom.agent.spec import ExitRecord, JobSpec
from gpubloom.agent.supervisor import End, SignalInbox, Supervisor
from gpubloom.agent.training import Become, start_training
from gpubloom.errors import InputError
from gpubloom.traincard.safe_paths import read_json_beneath

# Exit codes of the agent itself. The training's is in the exit record.
RECORDED = 0
NOT_RECORDED = 74
IN_USE = 75
ALREADY_RAN = 76
NO_JOB = 78

# Tells whoever started the agent, in one object, what became of that: {"started": pid}, {"in_use": true},
# {"already_ran": true} or {"problem": sentence, "errno": the system's number or null}.
Announce = Callable[[dict[str, Any]], None]


def announce_to(descriptor: int | None) -> Announce:
    """A function that writes one line of JSON to the descriptor, or does nothing without one."""

    def announce(news: dict[str, Any]) -> None:
        if descriptor is None:
            return
        # Who asked may be gone. The run goes on without them.
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, json.dumps(news).encode() + b"\n")
        os.close(descriptor)

    return announce


def run_attempt(
    run_dir: Path, *, start: str, devices: Sequence[int], announce: Announce, become: Become
) -> int:
    """Runs the job in agent/job.json. `start`: how this agent came to be; `devices`: locks to pass on."""
    files = AgentFiles(run_dir)
    try:
        held = hold(files.lock)
    except OSError as problem:
        announce(
            {
                "problem": f"The file {files.lock} cannot be locked: {problem.strerror}.",
                "errno": problem.errno,
            }
        )
        return NO_JOB
    if held is None:
        announce({"in_use": True})
        return IN_USE
    try:
        spec = files.read_job()
        if spec is None:
            raise InputError(
                "job_not_found", f"The file {files.job} does not exist, so there is no job to run."
            )
        already_ran = files.last_attempt() >= spec.attempt
        if not already_ran:
            reserved = files.reserve_exit(spec.attempt)
    except (OSError, ValueError) as problem:
        number = problem.errno if isinstance(problem, OSError) else None
        announce({"problem": f"The job in {run_dir} cannot be started: {problem}", "errno": number})
        return NO_JOB
    if already_ran:
        announce({"already_ran": True})
        return ALREADY_RAN
    log = OutputLog(files.output, spec.output_limit_bytes)
    started_at, began, kills_before = time.time(), time.monotonic(), oom_kills()
    end, problem_text = _run(spec, files, held, log, start, devices, announce, become)
    record = ExitRecord(
        attempt=spec.attempt,
        code=end.code,
        signal=end.signal,
        reason=end.reason,
        started_at=started_at,
        # How long it took must not change with a clock that is corrected meanwhile.
        ended_at=started_at + time.monotonic() - began,
        output_dropped_bytes=log.dropped_bytes,
        problem=problem_text,
        oom_kills=None if kills_before is None else max(0, (oom_kills() or 0) - kills_before),
    )
    log.note(_ending(record, run_dir))
    log.close()
    if not is_still_at(held, files.lock):
        return NOT_RECORDED
    try:
        reserved.write(record)
    except OSError:
        return NOT_RECORDED
    return RECORDED


def oom_kills() -> int | None:
    """How many processes the kernel of this machine has ended for lack of memory; None: it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _ending(record: ExitRecord, run_dir: Path) -> str:
    """How the attempt ended. A run that ended itself has said how; its exit code adds nothing."""
    try:
        latest = read_json_beneath(run_dir, "traincard/latest.json") or {}
    except (OSError, ValueError):
        latest = {}
    if record.reason == "ended" and record.code == 0 and latest.get("attempt") == record.attempt:
        match latest.get("status"):
            case "paused":
                return "The run was paused."
            case "cancelled":
                return "The run was cancelled."
            case "completed":
                return "The run completed."
    return record.sentence


def _run(
    spec: JobSpec,
    files: AgentFiles,
    held: int,
    log: OutputLog,
    start: str,
    devices: Sequence[int],
    announce: Announce,
    become: Become,
) -> tuple[End, str | None]:
    inbox = SignalInbox()
    adopt_orphans()
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    log.note(f"Attempt {spec.attempt} of job {spec.job_id} starts at {moment} ({start}).")
    if spec.note:
        log.note(spec.note)
    environment = training_environment(spec, os.environ, files.take_secrets())
    try:
        training = start_training(spec, environment, keep=(held, *devices), become=become)
        files.write_agent(AgentRecord.of_this_process(training.process, spec.attempt, start))
    except OSError as problem:
        sentence = f"{problem.strerror or problem}."
        announce(
            {"problem": f"The training process could not be started: {sentence}", "errno": problem.errno}
        )
        return End(None, None, "not_started"), sentence
    follower = OutputFollower.of(spec, environment)
    training.go()
    announce({"started": os.getpid()})
    # Threads only after the fork.
    if follower is not None:
        follower.start()
    end = Supervisor(spec, training, log, inbox, held, files.lock, follower).wait()
    if follower is not None:
        follower.finish(end.code, end.signal, end.reason)
    return end, None
