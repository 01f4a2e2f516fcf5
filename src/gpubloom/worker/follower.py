"""Follow one job as long as this worker holds its lease: start it, read its events, pass on commands, end it.

Every loop does the same few things in the same order, so it does not matter where an earlier worker stopped.

What a run wrote is not trusted: it may come from a rented machine or from a person's own script. A run whose
files cannot be read or stored is ended, and its job fails with a sentence.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.agent.spec import ExitRecord, JobSpec
from gpubloom.providers.base import AgentStatus, Provider, ProviderError, Reservation
from gpubloom.server.accounts.hub_tokens import open_hub_token
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.lease import LeaseLost, release
from gpubloom.server.jobs.recording import UnreadableRun, read_latest
from gpubloom.server.jobs.run_watch import RunWatch
from gpubloom.server.jobs.service import list_checkpoints
from gpubloom.server.jobs.states import ENDED, MODEL_TASK_KINDS, TOP_LEVEL_KINDS, after
from gpubloom.server.jobs.summary import (
    Processes,
    read_summary,
    summarize,
    with_waiting,
)
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.secrets.service import SecretUnavailable, job_secrets
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import room_for
from gpubloom.traincard.retry import RetryPolicy, retry_async
from gpubloom.traincard.safe_paths import is_file_beneath
from gpubloom.worker.attempt_outcome import (
    DIRECTORY_GONE,
    Ending,
    judge,
)
from gpubloom.worker.confinement import Confinement
from gpubloom.worker.disk import DiskFault, MachineDisk, fault_in, fault_of
from gpubloom.worker.failover import take_next_offer, was_taken_away
from gpubloom.worker.held_job import HeldJob
from gpubloom.worker.inputs import Fetching
from gpubloom.worker.job_endings import end, fail_over, requeue, wait_in_queue
from gpubloom.worker.launcher import LaunchFailed
from gpubloom.worker.lost_machines import stop_lost_run
from gpubloom.worker.retries import is_outage
from gpubloom.worker.run_directory import (
    AttemptResources,
    last_output_line,
    prepare_attempt,
    read_result,
    remove_secrets,
    write_control,
)
from gpubloom.worker.run_events import RunEvents, look_at_run

LOOP_SECONDS = 0.2
SUBMIT_RETRIES = RetryPolicy(first_pause=1.0, longest_pause=1.0, max_calls=5)


class Follower:
    """One claimed job."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        provider: Provider,
        job: TrainingJob,
        reservation: Reservation | None,
        disk: MachineDisk,
    ) -> None:
        self._held = HeldJob(database, job)
        self._database = database
        self._settings = settings
        self._provider = provider
        self._reservation = reservation
        self._disk = disk
        self._run_dir = run_directory(settings, job.id)
        self._watch = RunWatch(self._run_dir, has_history=bool(job.cursor))
        self._events = RunEvents(self._held, self._run_dir, self._watch)
        self._control_written = -1
        self._cancel_seen: float | None = None
        self._is_over = False
        self._signals_sent: set[str] = set()
        self.log = self._held.log

    @property
    def _job(self) -> TrainingJob:
        return self._held.row

    async def follow(self) -> None:
        """Follow the job until the attempt ends or the lease is lost."""
        try:
            if await self._is_to_start():
                await self._start()
            await self._keep_following()
        except LeaseLost:
            self.log.warning("this worker no longer follows the job")
            await self._stop_if_taken_away()
        except UnreadableRun as problem:
            await self._end_unreadable(problem)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the job must not stay stuck with it
            await self._give_up(problem)
        finally:
            self._is_over = True
            if self._reservation is not None:
                self._reservation.release()

    async def _give_up(self, problem: Exception) -> None:
        """Handle an unexpected error. A living run is followed again later; one that cannot start fails."""
        if is_outage(problem):
            # No error of the job: its lease expires, and a worker follows it again.
            raise problem
        self.log.error("following the job failed", exc_info=problem)
        fault = fault_of(problem) or await self._disk.examine()
        status = await self._status()
        if status.alive or (fault is not None and status.exit is not None):
            raise problem
        try:
            if fault is not None:
                await self._requeue(fault, status)
            await self._end("worker_error", f"{type(problem).__name__}: {problem}")
        except LeaseLost:
            self.log.warning("this worker no longer follows the job")

    async def _end_unreadable(self, problem: UnreadableRun) -> None:
        """Stop the run and fail the job: reading again would find the same."""
        self.log.error("the files of the run cannot be read: ending it", exc_info=problem)
        try:
            while (await self._status()).alive:
                await self._stop(force=True)
                await self._held.refresh()
                await asyncio.sleep(LOOP_SECONDS)
            await self._end("unreadable_run", f"The files of the run cannot be read: {problem}.")
        except LeaseLost:
            self.log.warning("this worker no longer follows the job")

    async def _keep_following(self) -> None:
        while True:
            # Asked before reading, so that the files of a run that has ended are read to their end.
            status = await self._status()
            if status.alive and status.attempt == self._job.attempt and self._job.status == "provisioning":
                # A rented machine has reported, or the last worker ended before it stored the start.
                await self._mark_started()
            look = self._watch.is_due
            if look:
                await look_at_run(self._watch.find_processes)
            more = await self._events.store_new()
            await self._held.refresh()
            if not status.alive:
                if not more and await self._conclude(status):
                    return
                continue
            await self._write_control(status)
            if not more:
                if look:
                    await self._diagnose()
                await asyncio.sleep(LOOP_SECONDS)

    async def _status(self) -> AgentStatus:
        try:
            return await self._provider.status(self._run_dir, self._job.attempt)
        except LaunchFailed as failure:
            await fail_over(self._held, failure)
            await self._end(failure.kind, str(failure))

    async def _is_to_start(self) -> bool:
        status = await self._status()
        return not status.alive and status.exit is None and status.attempt != self._job.attempt

    async def _start(self) -> None:
        """Start the attempt that this job's row already counts."""
        job = self._job
        if job.cursor and not await asyncio.to_thread(self._run_dir.is_dir):
            await self._end("directory_gone", DIRECTORY_GONE)
        if self._reservation is None:
            # The job was claimed from another worker before it started: it needs a device here.
            self._reservation = await self._wait_for_device()
            if self._reservation is None:
                return
        async with self._database.read() as session:
            room = await room_for(session, self._settings, job.user_id, job.id)
        given = AttemptResources(
            self._reservation,
            await self._confinement(),
            hub_token=await self._hub_token(),
            fetching=Fetching(await self._secrets(), room, self._is_wanted),
        )
        # A thread of its own: a download that takes hours must not occupy the threads of other jobs.
        thread = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        try:
            preparing = asyncio.get_running_loop().run_in_executor
            spec = await self._held.meanwhile(preparing(thread, prepare_attempt, self._run_dir, job, given))
        except ProviderError as problem:
            await self._refuse(problem)
        finally:
            thread.shutdown(wait=False)
        await self._submit(spec, self._reservation)
        self._reservation.release()
        self._reservation = None
        if job.target == "local":
            await self._mark_started()
        self.log.info("attempt started", attempt=job.attempt)

    def _is_wanted(self) -> bool:
        """Whether the attempt is still wanted. Called by the thread that prepares it."""
        return not self._is_over and self._job.status not in {"pausing", "cancelling"}

    async def _confinement(self) -> Confinement:
        """The sandbox of the job. For a task, the configs of the runs whose models it uses are read too."""
        settings, config = self._settings, self._job.config
        runs = settings.home / "runs"
        sources = []
        for path in (config.get("model"), config.get("base")):
            if isinstance(path, str) and Path(path).is_relative_to(runs):
                with contextlib.suppress(ValueError, IndexError):
                    source = UUID(Path(path).relative_to(runs).parts[0])
                    async with self._database.read() as session:
                        row = await session.get(TrainingJob, source)
                        sources += [] if row is None else [row.config]
        return Confinement(
            settings.home,
            is_required=settings.sandbox_mode == "require",
            is_off=settings.sandbox_mode == "off",
            sources=sources,
        )

    async def _mark_started(self) -> None:
        async def started(session: AsyncSession, row: TrainingJob) -> None:
            row.status = after("start", row.status)
            row.start_time = row.start_time or now()
            row.summary = with_waiting(row.summary, None)
            await announce(session, row)

        await self._held.change(started)

    async def _submit(self, spec: JobSpec, reservation: Reservation) -> None:
        """Start the agent. Retries for a while: an earlier agent may need a moment to end."""

        async def submit() -> None:
            submitting = asyncio.ensure_future(self._provider.submit(spec, reservation))
            try:
                await self._held.meanwhile(submitting)
            except ProviderError:
                raise
            except BaseException:
                # The agent is being started right now: its devices stay reserved until it has them.
                await asyncio.wait({submitting})
                raise

        async def wait(problem: Exception, pause: float) -> None:
            self.log.warning("could not start the agent, trying again", reason=str(problem))
            await asyncio.sleep(pause)

        try:
            await retry_async(submit, SUBMIT_RETRIES, is_transient=_may_start_later, wait=wait)
        except ProviderError as problem:
            await self._refuse(problem)

    async def _hub_token(self) -> str | None:
        """The owner's token for a task that pushes to a hub. It is stored in a file of the task only."""
        if not self._job.config.get("hub"):
            return None
        async with self._database.read() as session:
            return await open_hub_token(session, self._settings, self._job.user_id)

    async def _secrets(self) -> Mapping[str, str]:
        """The values of the job's secrets. If one is missing, the job fails and the error names it."""
        try:
            async with self._database.read() as session:
                return await job_secrets(session, self._settings, self._job)
        except SecretUnavailable as problem:
            await self._end(problem.code, str(problem))

    async def _wait_for_device(self) -> Reservation | None:
        """None: it runs by now. Whoever lost the lease while starting it went on, and it has the device."""
        side_slot = self._job.kind in MODEL_TASK_KINDS
        while (reservation := self._provider.reserve(self._job.gpus, side_slot=side_slot)) is None:
            if not await self._is_to_start():
                return None
            await self._held.refresh()
            if self._job.status in {"pausing", "cancelling"}:
                await self._end(None, None)
            await asyncio.sleep(LOOP_SECONDS)
        if await self._is_to_start():
            return reservation
        reservation.release()
        return None

    async def _refuse(self, problem: ProviderError) -> NoReturn:
        """The attempt cannot be started: on account of the job, or of this machine's disk."""
        if (fault := fault_of(problem) or await self._disk.examine()) is not None:
            await self._requeue(fault, await self._status())
        await self._end(problem.code, str(problem))

    async def _end(self, code: str | None, message: str | None) -> NoReturn:
        await end(self._held, self._run_dir, code, message)

    async def _requeue(self, fault: DiskFault, status: AgentStatus) -> NoReturn:
        confirmed = await self._disk.confirms(fault)
        await requeue(self._held, self._run_dir, fault, confirmed=confirmed, began=status.attempt)

    async def _diagnose(self) -> None:
        """Store the findings about the run for the job's page."""
        findings, processes = await look_at_run(self._watch.look)

        async def noted(session: AsyncSession, row: TrainingJob) -> None:
            summary = read_summary(row.summary)
            summary.findings, summary.processes = findings, processes
            row.summary = summary.dump()
            await announce(session, row)

        known = read_summary(self._job.summary)
        if (findings, processes) != (known.findings, known.processes):
            await self._held.change(noted)

    async def _write_control(self, status: AgentStatus) -> None:
        """Carry out what was asked for; end what does not listen."""
        job = self._job
        if not status.agent_alive:
            # The agent is gone, so nothing reads the output of the training process: it would block.
            self.log.warning("the agent is gone but its training process still runs: stopping it")
            await self._stop(force=True)
            return
        if job.control_version != self._control_written:
            try:
                await asyncio.to_thread(write_control, self._run_dir, job.want, job.settings, job.saves)
                self._control_written = job.control_version
            except (OSError, ValueError) as problem:
                self.log.warning("could not write control.json", reason=str(problem))
        # A script on this machine reads no control.json, only signals; on an instance the agent sends them.
        ignores_control = job.kind == "script" and job.target == "local"
        if job.status == "cancelling" or (job.status == "pausing" and ignores_control):
            self._cancel_seen = self._cancel_seen or time.monotonic()
            waited = time.monotonic() - self._cancel_seen
            if job.status == "cancelling" and waited > self._provider.grace_period.force_seconds:
                await self._signal_once("kill", force=True)
            elif ignores_control or waited > self._provider.grace_period.stop_seconds:
                await self._signal_once("terminate", force=False)

    async def _signal_once(self, name: str, *, force: bool) -> None:
        if name not in self._signals_sent:
            self._signals_sent.add(name)
            await self._stop(force=force)

    async def _stop(self, *, force: bool) -> None:
        try:
            await self._provider.stop(self._run_dir, force=force)
        except ProviderError as problem:
            # The process may be in an uninterruptible system call: the next loop tries again.
            self.log.warning("could not stop the run yet", reason=str(problem))
            self._signals_sent.discard("kill")

    async def _stop_if_taken_away(self) -> None:
        """End the training of a job that was taken from this machine; nothing is written to the job."""
        if self._job.target != "local":
            return
        async with self._database.read() as session:
            row = await session.get(TrainingJob, self._job.id)
        is_ours = row is not None and row.machine == self._job.machine
        if row is None or not is_ours or row.lease_token is None:
            await stop_lost_run(self._provider, self._run_dir, up_to=self._job.attempt)

    async def _conclude(self, status: AgentStatus) -> bool:
        """Store the outcome of an attempt that has ended. False: not all of its events are stored yet."""
        exists = await asyncio.to_thread(self._run_dir.is_dir)
        latest = await asyncio.to_thread(read_latest, self._run_dir) if exists else None
        own = latest is not None and latest.get("attempt") == self._job.attempt
        last_line = await asyncio.to_thread(last_output_line, self._run_dir)
        if self._job.kind in TOP_LEVEL_KINDS:
            result = None
            finished = await asyncio.to_thread(is_file_beneath, self._run_dir, "model/config.json")
        else:
            result = await asyncio.to_thread(read_result, self._run_dir)
            finished = result is not None
            await asyncio.to_thread(remove_secrets, self._run_dir)
        findings, processes = (
            await look_at_run(lambda: self._watch.look(ended=True)) if exists else ([], Processes())
        )
        error = latest.get("error") if own and latest else None
        error = error if isinstance(error, dict) else None
        disk_fault, confirmed = await self._disk_fault(status.exit, error, last_line)

        async def concluded(session: AsyncSession, row: TrainingJob) -> bool:
            if row.cursor != self._events.cursor:
                self._events.read_again_from(row.cursor)
                return False
            saved = await list_checkpoints(session, row.id)
            newest = max((checkpoint.step for checkpoint in saved), default=None)
            verdict = judge(
                Ending(
                    status=row.status,
                    exit=status.exit,
                    said=str(latest.get("status")) if own and latest else None,
                    kind=row.kind,
                    is_finished=finished,
                    error=error,
                    last_line=last_line,
                    has_newer_checkpoint=newest is not None
                    and (row.newest_checkpoint is None or newest > row.newest_checkpoint),
                    attempts_without_progress=row.attempts_without_progress,
                    max_attempts=row.max_attempts,
                    directory_exists=exists,
                    disk_fault=disk_fault,
                    disk_fault_confirmed=confirmed,
                    refused=status.refused,
                )
            )
            row.status = after(verdict.action, row.status)
            if verdict.action == "retry" and await was_taken_away(session, row):
                # A spot machine: the next offer resumes from the newest checkpoint.
                take_next_offer(row, "lost", now())
            row.newest_checkpoint = newest
            row.attempts_without_progress = verdict.attempts_without_progress
            if verdict.action != "stop":
                # A stop may already have an error message that says why.
                row.error_code, row.error_message = verdict.code, verdict.message
            if verdict.action == "complete":
                row.result = result
            summary = summarize(read_summary(row.summary), latest, self._events.damaged_lines)
            summary.findings, summary.processes = findings, processes
            row.summary = summary.dump()
            wait_in_queue(row, verdict, disk_fault_confirmed=confirmed)
            if row.status in ENDED:
                row.end_time = now()
            release(row)
            await announce(session, row, checkpoints=True)
            self.log.info(
                "attempt ended",
                attempt=row.attempt,
                status=row.status,
                reason=verdict.message or verdict.waiting,
            )
            return True

        return await self._held.change(concluded)

    async def _disk_fault(
        self, ended: ExitRecord | None, error: dict[str, Any] | None, last_line: str | None
    ) -> tuple[DiskFault | None, bool]:
        """The fault of this machine's disk that may have ended the attempt; whether a probe finds it, too."""
        if self._job.target != "local":
            return None, False
        if (found := await self._disk.examine()) is not None:
            # A disk that cannot be written keeps no record of why the attempt ended.
            return found, True
        # What a person's own script prints proves nothing about the disk.
        said = None if self._job.kind == "script" else _fault_said(ended, error, last_line)
        if said is None:
            self._disk.worked()
            return None, False
        return said, await self._disk.confirms(said)


def _may_start_later(problem: Exception) -> bool:
    return isinstance(problem, ProviderError) and fault_of(problem) is None


def _fault_said(
    ended: ExitRecord | None, error: dict[str, Any] | None, last_line: str | None
) -> DiskFault | None:
    """The disk fault behind the last log line of a run that ended with an error."""
    if error is not None:
        return fault_in(str(error.get("message")))
    if ended is not None and ended.problem is not None:
        return fault_in(ended.problem)
    return fault_in(last_line or "") if ended is not None and ended.code else None
