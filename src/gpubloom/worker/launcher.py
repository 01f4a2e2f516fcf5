"""From a job to a machine that runs it: money, luggage, bucket, service. Each may have to be waited for."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import structlog

from gpubloom.agent import JobSpec
from gpubloom.providers.base import ProviderError
from gpubloom.providers.cloud import Fault, Instance, Launch
from gpubloom.providers.skypilot.task import region_of
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.storage import Bundle, StorageError, Store, send_bundle
from gpubloom.worker.disk import fault_of
from gpubloom.worker.packaging import PackageDependencies, package_dependencies
from gpubloom.worker.renting import Renting
from gpubloom.worker.retries import PollIntervals, RetryingCalls
from gpubloom.worker.spending import Spending

log = structlog.get_logger("bloom.worker")


class NotStarted(Exception):
    """No machine can be had, and waiting will not help; `kind` is the fault's, the text a sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class Launcher:
    """One attempt that has no machine yet. `was_asked`: a service may have started one."""

    def __init__(
        self,
        job: TrainingJob,
        run_dir: Path,
        store: Store,
        renting: Renting,
        spending: Spending,
        poll_intervals: PollIntervals,
        calls: RetryingCalls,
        is_unwanted: Callable[[], bool],
        has_spoken: Callable[[], Awaitable[bool]],
    ) -> None:
        self._job, self._run_dir, self._store = job, run_dir, store
        self._renting, self._spending, self._poll_intervals, self._calls = (
            renting,
            spending,
            poll_intervals,
            calls,
        )
        self._is_unwanted, self._has_spoken = is_unwanted, has_spoken
        self.was_asked = False
        self.log = log.bind(job=str(job.id), provider=job.target)

    async def rent(self, spec: JobSpec, rental_id: UUID) -> Instance | None:
        """The machine; None: the money is spent, or nobody wants it any more. NotStarted: there is none."""
        allowance = await self._calls.insist(lambda: self._spending.allow(rental_id))
        if allowance.decision.action == "stop":
            return None
        try:
            dependencies = await self._package()
            launch = None if dependencies is None else await self._send(spec, dependencies, allowance.seconds)
            return None if launch is None else await self._submit(launch)
        except (ValueError, OSError) as problem:
            raise await self._refused(rental_id, "not_started", str(problem)) from problem
        except Fault as fault:
            raise await self._refused(rental_id, fault.kind, str(fault)) from fault
        except ProviderError as problem:
            raise await self._refused(rental_id, "refused", str(problem)) from problem

    async def _refused(self, rental_id: UUID, kind: str, sentence: str) -> NotStarted:
        await self._calls.insist(lambda: self._spending.end(rental_id, sentence))
        return NotStarted(kind, sentence)

    async def _package(self) -> PackageDependencies | None:
        """What the job needs there; None: nobody wants it any more."""
        pause = self._poll_intervals.first_pause
        while not self._is_unwanted():
            try:
                return await self._calls.in_thread(
                    lambda: package_dependencies(self._job, self._renting.folder)
                )
            except OSError as problem:
                if (fault := fault_of(problem)) is None:
                    raise
                await self._wait(f"{fault.sentence} The job starts when the disk can be written.", pause)
                pause = min(pause * 2, self._poll_intervals.longest_pause)
        return None

    async def _send(
        self, spec: JobSpec, dependencies: PackageDependencies, affordable_seconds: float
    ) -> Launch | None:
        """Puts the job's files into the bucket."""
        offer = self._job.offer or {}
        time_limit = self._time_limit(affordable_seconds)
        spec = replace(spec, command=_remote_command(spec.command), time_limit_seconds=time_limit)
        bundle = Bundle(spec, self._run_dir, dependencies.package, timing=self._poll_intervals.agent)
        while not self._is_unwanted():
            try:
                sent = await self._calls.in_thread(lambda: send_bundle(self._store, bundle))
            except (StorageError, OSError) as problem:
                if isinstance(problem, OSError) and fault_of(problem) is None:
                    raise
                await self._wait(
                    f"The job's files cannot be stored now: {problem}", self._poll_intervals.first_pause
                )
                continue
            return Launch(
                key=self._renting.key(self._job.attempt),
                gpu=str(offer["gpu"]),
                gpus=int(offer["gpus"]),
                command=sent.command,
                start_address=sent.address,
                region=self._region(),
                spot=offer.get("kind") == "spot",
                disk_gb=int(offer.get("disk_gb") or 50),
                packages=dependencies.packages,
                longest_seconds=self._longest_life(time_limit),
            )
        return None

    def _region(self) -> str | None:
        offer = self._job.offer or {}
        if self._job.target == "skypilot":
            return region_of(str(offer["provider"]), offer.get("region"))
        return offer.get("region")

    def _time_limit(self, affordable_seconds: float) -> float | None:
        """The agent's own: it stops there even when nobody is left to tell it."""
        limits = [affordable_seconds]
        if self._renting.longest_seconds is not None:
            limits.append(longest_run(self._renting.longest_seconds, self._poll_intervals))
        shortest = min(limits)
        return None if shortest == float("inf") else max(shortest, 1.0)

    def _longest_life(self, time_limit: float | None) -> float | None:
        """The machine's own: long after the agent has stopped and delivered, should nobody end it."""
        lives = [] if self._renting.longest_seconds is None else [self._renting.longest_seconds]
        if time_limit is not None:
            lives.append(time_limit + self._poll_intervals.last_resort)
        return min(lives, default=None)

    async def _submit(self, launch: Launch) -> Instance | None:
        pause = self._poll_intervals.first_pause
        while not self._is_unwanted():
            self.was_asked = True
            try:
                return await self._renting.submit(launch)
            except Fault as fault:
                if not fault.passes and not fault.uncertain:
                    raise
                seconds = max(pause, fault.retry_after_seconds or 0.0)
                await self._wait(f"{fault} It is tried again by itself.", seconds)
                if fault.uncertain and await self._has_spoken():
                    # Some services forget what has ended: asked again, they would start a second one.
                    return self._renting.unseen(self._job.attempt)
                pause = min(pause * 2, self._poll_intervals.longest_pause)
        return None

    async def _wait(self, sentence: str, seconds: float) -> None:
        await self._calls.insist(lambda: self._spending.wait(sentence))
        self.log.warning("no machine yet", reason=sentence)
        until = time.monotonic() + seconds
        for _ in range(1 + int(seconds)):
            if self._is_unwanted() or time.monotonic() >= until:
                return
            await asyncio.sleep(min(1.0, seconds))


def longest_run(longest_seconds: float, poll_intervals: PollIntervals) -> float:
    """How long a training may run on a machine that lives for so long."""
    return max(longest_seconds - poll_intervals.margin, longest_seconds / 2)


def _remote_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Interpreters have other paths there."""
    return ("python3", *command[1:]) if command[0] == sys.executable else command
