"""The worker's main loop: announce this machine, claim jobs, and follow those that were claimed."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from uuid import UUID, uuid4

import structlog
from sqlalchemy import delete, exists, select
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.plan import Hardware
from gpubloom.plan.machine_file import measured_hardware
from gpubloom.providers.base import Reservation
from gpubloom.providers.local.provider import LocalProvider
from gpubloom.providers.local.sandbox import why_no_warm_sandbox
from gpubloom.sandbox import cgroup
from gpubloom.server.administration.warnings import server_warnings
from gpubloom.server.db.clock import database_time
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.launch import WORKER_SEEN_WITHIN
from gpubloom.server.jobs.lease import (
    Claimant,
    FreeSlots,
    claim_abandoned,
    claim_queued,
    expire_leases,
    lease_holders,
)
from gpubloom.server.jobs.machines import note_machine
from gpubloom.server.jobs.states import MODEL_TASK_KINDS
from gpubloom.server.jobs.tables import TrainingJob, Worker
from gpubloom.server.settings import Settings
from gpubloom.worker.calibration import calibrate_when_idle
from gpubloom.worker.disk import PROBE_SECONDS, DiskFault, MachineDisk, fault_of
from gpubloom.worker.follower import Follower
from gpubloom.worker.imports import Preparations
from gpubloom.worker.job_storage import keep_measuring
from gpubloom.worker.lost_machines import LostMachines, come_back
from gpubloom.worker.preemption import Preemption
from gpubloom.worker.remote_attempt import PollIntervals
from gpubloom.worker.rented_jobs import RentedJobs, keep_reconciling
from gpubloom.worker.retries import is_outage

log = structlog.get_logger("bloom.worker")

LOOK_SECONDS = 0.25
ABANDONED_EVERY_SECONDS = 2.0
SHOW_EVERY_SECONDS = 10.0
# Consecutive failures. One can be a race with a row that was deleted meanwhile; ten are a bug.
MOST_WRONG_STATEMENTS = 10


class WorkerLoop:
    """One worker on one machine."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        provider: LocalProvider,
        poll_intervals: PollIntervals | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._provider = provider
        self._poll_intervals = poll_intervals or PollIntervals()
        self._id: UUID = uuid4()
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        # None until it is stored on the disk.
        self._machine: str | None = None
        self.disk = MachineDisk(settings.home / "runs")
        self._shown_fault: DiskFault | None = None
        self._followed: dict[UUID, asyncio.Task[None]] = {}
        self._hardware: Hardware | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until told to stop. Jobs keep running without this worker; the next worker finds them."""
        self._hardware = await asyncio.to_thread(measured_hardware, self._settings.home)
        if (machine := await self._machine_name(stopping)) is None:
            with contextlib.suppress(SQLAlchemyError, OSError):
                async with self._database.write() as session:
                    await session.execute(delete(Worker).where(Worker.id == self._id))
            return
        self._open(machine)
        await self._provider.open()
        trying = asyncio.create_task(asyncio.to_thread(self._try_confinement), name="try the sandbox")
        await self._expire_leases_of_dead_workers()
        preparing = asyncio.create_task(self._preparations.run(stopping), name="prepare datasets and models")
        reconciling = asyncio.create_task(
            keep_reconciling(self._settings, self._database, stopping),
            name="terminate machines that no job owns",
        )
        measuring = asyncio.create_task(
            keep_measuring(self._settings, self._database, machine, stopping),
            name="measure the files of jobs",
        )
        calibrating = asyncio.create_task(self._calibrate(), name="measure the speed of this machine")
        lost_machines = LostMachines(self._settings, self._database, self._claimant, self._hardware)
        clock = asyncio.get_running_loop().time
        shown = looked = -1e9
        wrong = 0
        try:
            while not stopping.is_set():
                try:
                    is_usable = await self.disk.is_usable()
                    if clock() - shown >= SHOW_EVERY_SECONDS or self.disk.fault != self._shown_fault:
                        await self._announce_machine()
                        shown = clock()
                    if clock() - looked >= ABANDONED_EVERY_SECONDS:
                        await come_back(self._settings, self._database, self._claimant, self._provider)
                        await self._expire_leases_of_dead_workers()
                        await self._claim_abandoned()
                        looked = clock()
                    if is_usable:
                        await lost_machines.look()
                        await self._claim_queued()
                        await self._claim_rented()
                    wrong = 0
                except (SQLAlchemyError, OSError) as problem:
                    if (fault := fault_of(problem)) is not None:
                        await self.disk.confirms(fault)
                    elif isinstance(problem, OSError) or is_outage(problem):
                        reason = type(problem).__name__
                        log.warning("the database does not answer, trying again", reason=reason)
                    else:
                        wrong += 1
                        log.error("the worker sent a wrong statement to the database", exc_info=problem)
                        if wrong >= MOST_WRONG_STATEMENTS:
                            # The runs continue. The exit status shows that this worker cannot work.
                            raise
                    await asyncio.sleep(1)
                await _wait(stopping, LOOK_SECONDS)
        finally:
            background = (preparing, reconciling, measuring, calibrating)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, trying, return_exceptions=True)
            await self._stop()

    async def _calibrate(self) -> None:
        measured = await calibrate_when_idle(self._settings.home, lambda: not self._followed)
        if measured is not None:
            self._hardware = measured

    def _try_confinement(self) -> None:
        """Find out which sandbox this machine allows, before the first job needs it; the result is cached."""
        if (reason := cgroup.delegate()) is not None:
            log.info("jobs have no control groups; their memory is watched instead", reason=reason)
        for sentence in server_warnings(self._settings.sandbox_mode):
            log.warning(sentence)
        why_no_warm_sandbox()

    async def _machine_name(self, stopping: asyncio.Event) -> str | None:
        """The lasting name of this machine; waits for a disk on which it can be kept. None: told to stop."""
        while not stopping.is_set():
            try:
                return await asyncio.to_thread(machine_name, self._settings.home)
            except OSError as problem:
                if (fault := fault_of(problem)) is None:
                    raise
                await self.disk.confirms(fault)
            with contextlib.suppress(SQLAlchemyError, OSError):
                await self._announce_machine()
            await _wait(stopping, PROBE_SECONDS)
        return None

    def _open(self, machine: str) -> None:
        self._machine = machine
        self._claimant = Claimant(worker=self._name, machine=machine)
        self._preparations = Preparations(
            self._settings, self._database, self._name, _process_lives, self.disk
        )
        self._room = Preemption(self._settings, self._database, self._claimant, gpus=len(self._provider.gpus))
        self._rented = RentedJobs(
            self._settings, self._database, self._claimant, self._poll_intervals, self.disk
        )

    async def _expire_leases_of_dead_workers(self) -> None:
        """A worker of this machine that was killed cannot come back: its leases need not run out."""
        try:
            # A read first: an idle worker takes no write lock.
            async with self._database.read() as session:
                holders = await lease_holders(session, self._claimant.machine)
            if gone := [name for name in holders if not _process_lives(name)]:
                async with self._database.write() as session:
                    await expire_leases(session, self._claimant.machine, workers=gone)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("waiting for the leases of earlier workers to expire", reason=type(problem).__name__)

    async def _announce_machine(self) -> None:
        assert self._hardware is not None
        async with self._database.write() as session:
            row = await session.get(Worker, self._id)
            if row is None:
                row = Worker(id=self._id, name=self._name)
                session.add(row)
            row.hardware = self._hardware.model_dump(mode="json")
            row.last_seen_at = database_time()
            if self._machine is not None:
                await note_machine(session, self._machine)
            fault = self.disk.fault
            row.fault_code = None if fault is None else fault.code
            row.fault_message = None if fault is None else fault.for_operator
            long_ago = database_time(-60 * WORKER_SEEN_WITHIN)
            await session.execute(delete(Worker).where(Worker.last_seen_at < long_ago))
        self._shown_fault = fault

    async def _claim_abandoned(self) -> None:
        while True:
            async with self._database.write() as session:
                job = await claim_abandoned(session, self._claimant)
            if job is None:
                return
            log.info("continuing to follow a job", job=str(job.id), attempt=job.attempt)
            self._follow(job, None)

    async def _claim_queued(self) -> None:
        assert self._hardware is not None
        while self.disk.fault is None and await self._has_queued_jobs():
            cpu = self._provider.reserve(0)
            side_slot = self._provider.reserve(0, side_slot=True)
            gpu = self._most_gpus()
            free = FreeSlots(
                gpus=0 if gpu is None else len(gpu.devices),
                cpu=cpu is not None,
                side_slot=side_slot is not None,
                gpu_names=[found.name for found in self._hardware.gpus],
            )
            job: TrainingJob | None = None
            kept: Reservation | None = None
            try:
                if cpu is not None or side_slot is not None or gpu is not None:
                    async with self._database.write() as session:
                        job = await claim_queued(session, self._claimant, free)
                if job is not None:
                    kept = gpu if job.gpus else (side_slot if job.kind in MODEL_TASK_KINDS else cpu)
                    if kept is gpu and gpu is not None and len(gpu.devices) != job.gpus:
                        # More than it needs: its follower takes what it needs and leaves the rest.
                        kept = None
            finally:
                for reservation in (cpu, side_slot, gpu):
                    if reservation is not None and reservation is not kept:
                        reservation.release()
            if job is None:
                await self._room.make(free)
                return
            self._follow(job, kept)

    def _most_gpus(self) -> Reservation | None:
        """As many GPUs as are free: a job may want several."""
        for count in range(len(self._provider.gpus), 0, -1):
            if (found := self._provider.reserve(count)) is not None:
                return found
        return None

    async def _has_queued_jobs(self) -> bool:
        # A read first: an idle worker takes no write lock.
        async with self._database.read() as session:
            waits = exists().where(TrainingJob.status == "queued", TrainingJob.target == "local")
            return bool(await session.scalar(select(waits)))

    async def _claim_rented(self) -> None:
        while self.disk.fault is None and (job := await self._rented.claim()) is not None:
            self._follow(job, None)

    def _follow(self, job: TrainingJob, reservation: Reservation | None) -> None:
        if job.target == "local":
            work = Follower(
                self._database, self._settings, self._provider, job, reservation, self.disk
            ).follow()
        else:
            work = self._rented.follow(job)
        task = asyncio.create_task(work, name=f"follow {job.id}")
        self._followed[job.id] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._followed.get(job.id) is task:
                del self._followed[job.id]
            if not task.cancelled() and (problem := task.exception()) is not None:
                # The lease expires, and a worker follows the job again.
                log.error("following a job failed", job=str(job.id), exc_info=problem)

        task.add_done_callback(ended)

    async def _stop(self) -> None:
        for task in self._followed.values():
            task.cancel()
        await asyncio.gather(*self._followed.values(), return_exceptions=True)
        await self._provider.close()
        try:
            async with self._database.write() as session:
                # The next worker need not wait for leases to run out.
                await expire_leases(session, self._claimant.machine, workers=[self._claimant.worker])
                await session.execute(delete(Worker).where(Worker.id == self._id))
        except (SQLAlchemyError, OSError) as problem:
            log.warning("could not sign this worker off in the database", reason=type(problem).__name__)


def machine_name(home: Path) -> str:
    """A lasting name for this machine's run directories; made once, kept beside them."""
    path = home / "machine"
    if not path.exists():
        whole = home / f".machine.{uuid4()}"
        try:
            whole.write_text(f"{socket.gethostname()}-{uuid4()}\n")
            # Of several workers that start at once, one names the machine; nobody sees half a name.
            with contextlib.suppress(FileExistsError):
                os.link(whole, path)
        finally:
            whole.unlink(missing_ok=True)
    return path.read_text().strip()


def _process_lives(worker: str) -> bool:
    """Whether the process of a worker may live: that of another host cannot be seen from here."""
    host, _, number = worker.rpartition(":")
    if host != socket.gethostname():
        return True
    return number.isdecimal() and Path(f"/proc/{number}").exists()


async def _wait(stopping: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return
