"""This machine as a provider: agents are detached processes, devices are files, warm starts where possible.

The provider keeps nothing about a run. All that it says is read from the run directory and from the kernel,
so that any worker of this machine can take up where another one stopped.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpubloom.agent import AgentFiles, AgentRecord, JobSpec
from gpubloom.agent.file_lock import is_held
from gpubloom.agent.processes import group_has
from gpubloom.providers.base import AgentStatus, GracePeriod, ProviderError, Reservation
from gpubloom.providers.local.agent_process import NotWarm, WarmParent, start_plainly, why_not_warm
from gpubloom.providers.local.devices import Devices
from gpubloom.providers.local.sandbox import why_no_warm_sandbox

_log = logging.getLogger(__name__)

# An agent records the start and the end of the training within milliseconds, on a machine that is not busy.
_RECORD_SECONDS = 3.0
# A killed process is gone as quickly, unless the kernel is occupied with its memory or a disk.
_GONE_SECONDS = 20.0
_LOOK_SECONDS = 0.02


class LocalProvider:
    """Runs jobs on this machine. `home`: BLOOM_HOME. `warm=False`: every start is a plain one.

    `warm_modules` are imported beforehand; `devices` are this machine's unless somebody says otherwise.
    """

    def __init__(
        self,
        home: Path,
        *,
        warm: bool = True,
        warm_modules: Sequence[str] = ("gpubloom.engine",),
        devices: Devices | None = None,
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise ProviderError(
                "platform_not_supported", "Background jobs need Linux. Use `bloom train` on this machine."
            )
        self.grace_period = GracePeriod()
        self._folder = home / "agents"
        self._devices = devices or Devices(home)
        self._warm = WarmParent(warm_modules) if warm else None

    async def open(self) -> None:
        """Starts the warm parent; does not wait for its imports."""
        if self._warm is not None:
            await asyncio.to_thread(self._warm.start)

    async def close(self) -> None:
        """Stop the warm parent process. Agents keep running."""
        if self._warm is not None:
            await asyncio.to_thread(self._warm.close)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that jobs can have here."""
        return self._devices.gpus

    def reserve(self, gpus: int, *, side_slot: bool = False) -> Reservation | None:
        """Devices for one job, or None while others have them. ProviderError: there are not that many."""
        return self._devices.reserve(gpus, side_slot=side_slot)

    async def submit(self, spec: JobSpec, reservation: Reservation) -> None:
        """Starts the attempt; returns once its agent holds the run. One that runs or ran is left alone."""
        await asyncio.to_thread(self._submit, spec, reservation)

    async def status(self, run_dir: Path, attempt: int) -> AgentStatus:
        return await asyncio.to_thread(agent_status, run_dir, attempt)

    async def stop(self, run_dir: Path, *, force: bool) -> None:
        """Asks the agent to stop the training, or ends both; does nothing where nothing lives.

        With `force` it returns once the run is free, and raises ProviderError when it stays held.
        """
        await asyncio.to_thread(_end if force else _ask_to_stop, run_dir)

    def _submit(self, spec: JobSpec, reservation: Reservation) -> None:
        files = AgentFiles(spec.run_dir)
        if _needs_no_start(files, spec):
            return
        try:
            spec = replace(spec, environment={**spec.environment, **reservation.environment})
            files.write_job(spec)
        except FileNotFoundError as problem:
            raise ProviderError(
                "directory_gone", f"The run directory {spec.run_dir} no longer exists."
            ) from problem
        except OSError as problem:
            raise ProviderError(
                "cannot_write", f"The job file {files.job} cannot be written: {problem.strerror}."
            ) from problem
        news = self._start(spec, reservation)
        if "problem" in news:
            number = news.get("errno")
            cause = None if number is None else OSError(number, os.strerror(number))
            raise ProviderError("agent_not_started", str(news["problem"])) from cause
        if "in_use" in news and not _runs_here(files, spec):
            raise ProviderError(
                "run_in_use", f"{spec.run_dir} was in use until a moment ago. Submit the job again."
            )

    def _start(self, spec: JobSpec, reservation: Reservation) -> dict[str, Any]:
        try:
            if self._warm is None:
                raise NotWarm("warm starts are off")
            if reason := why_not_warm(spec, os.environ):
                raise NotWarm(reason)
            if spec.confinement is not None and (reason := why_no_warm_sandbox()):
                raise NotWarm(reason)
            return self._warm.ask(spec.run_dir, reservation)
        except NotWarm as problem:
            _log.info("Attempt %d of job %s starts in a new process: %s.", spec.attempt, spec.job_id, problem)
            return start_plainly(spec.run_dir, reservation, self._folder, str(problem))


def _needs_no_start(files: AgentFiles, spec: JobSpec) -> bool:
    """Whether this attempt already runs or ran."""
    started = files.last_attempt()
    if started > spec.attempt:
        raise ProviderError(
            "attempt_out_of_order",
            f"Attempt {started} was already started, so attempt {spec.attempt} can no longer start.",
        )
    return started == spec.attempt or (is_held(files.lock) and _runs_here(files, spec))


def _runs_here(files: AgentFiles, spec: JobSpec) -> bool:
    """Whether what holds the run is this attempt. An agent that took the lock just now has yet to say so."""
    deadline = time.monotonic() + _RECORD_SECONDS
    while (started := files.last_attempt()) < spec.attempt:
        if not is_held(files.lock):
            return False
        if time.monotonic() > deadline:
            raise ProviderError(
                "attempt_out_of_order",
                f"Attempt {started} is still running. Attempt {spec.attempt} must wait until it ends.",
            )
        time.sleep(_LOOK_SECONDS)
    return True


def agent_status(run_dir: Path, attempt: int) -> AgentStatus:
    """Reads the lock first: an agent records the end before it lets go, never after."""
    files = AgentFiles(run_dir)
    alive = is_held(files.lock)
    record = _record(files)
    try:
        end = files.read_exit(attempt)
    except ValueError as problem:
        _log.warning("%s is damaged and cannot be read: %s", files.exit(attempt), problem)
        end = None
    agent_alive = alive and record is not None and record.agent.lives
    if alive and not agent_alive and not is_held(files.lock):
        # It ended while we looked: the end is on record now, or never will be.
        return agent_status(run_dir, attempt)
    return AgentStatus(alive, agent_alive, files.last_attempt(), end)


def _record(files: AgentFiles) -> AgentRecord | None:
    try:
        return files.read_agent()
    except ValueError as problem:
        _log.warning("%s is damaged and cannot be read: %s", files.agent, problem)
        return None


def _living(run_dir: Path) -> tuple[AgentFiles, AgentRecord] | None:
    """The record of the agent that runs here; None without one. Signals need the lock to be held."""
    files = AgentFiles(run_dir)
    if not is_held(files.lock):
        return None
    record = _record(files)
    if record is None:
        raise ProviderError(
            "run_in_use",
            f"An unknown process holds the lock {files.lock} ({files.agent} has no record of it): wait until "
            "the process ends, or end it yourself.",
        )
    return files, record


def _ask_to_stop(run_dir: Path) -> None:
    if (living := _living(run_dir)) is None:
        return
    files, record = living
    if not record.agent.signal(signal.SIGTERM):
        # Nobody is left to pass it on.
        _signal_group(files, record, signal.SIGTERM)


def _end(run_dir: Path) -> None:
    if (living := _living(run_dir)) is None:
        return
    files, record = living
    # The training first: an agent in good health sees its end and records it.
    _signal_group(files, record, signal.SIGKILL)
    if record.agent.lives and _wait_until_free(files, _RECORD_SECONDS):
        return
    record.agent.signal(signal.SIGKILL)
    _signal_group(files, record, signal.SIGKILL)
    if not _wait_until_free(files, _GONE_SECONDS):
        raise ProviderError(
            "run_in_use",
            f"Process group {record.group} was killed but still exists. {run_dir} stays in use.",
        )


def _signal_group(files: AgentFiles, record: AgentRecord, number: signal.Signals) -> None:
    # The leader may be gone while its children hold on to the run. The number is still theirs then; that
    # one of them has the lock open proves it.
    if record.training.lives or group_has(record.group, files.lock):
        try:
            os.killpg(record.group, number)
        except ProcessLookupError:
            return


def _wait_until_free(files: AgentFiles, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_held(files.lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
