"""Machines that stopped reporting: what other workers do about them, and their own worker on return.

On another machine: after a long silence a machine counts as lost. Its jobs continue here if their files can
be read here (a run directory on a shared disk), start again if nothing was saved yet, and fail when no
worker took them for a while. On return: trainings whose jobs were taken away are ended before anything else
is claimed.
"""

import asyncio
import socket
import time
from pathlib import Path
from uuid import UUID

import structlog
from sqlalchemy import select, update

from gpubloom.agent import AgentFiles
from gpubloom.agent.file_lock import is_held
from gpubloom.plan import Hardware
from gpubloom.providers.base import Provider, ProviderError
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.lease import Claimant
from gpubloom.server.jobs.machines import silent_machines
from gpubloom.server.jobs.recovery import fail_lost, forget_machine, lost_jobs, take_over
from gpubloom.server.jobs.service import list_checkpoints
from gpubloom.server.jobs.states import ACTIVE, MODEL_TASK_KINDS
from gpubloom.server.jobs.tables import Checkpoint, Machine, TrainingJob
from gpubloom.server.rentals.store_choice import Stores, read_stores
from gpubloom.server.settings import Settings
from gpubloom.traincard.safe_paths import is_folder_beneath

log = structlog.get_logger("bloom.worker")

LOOK_EVERY_SECONDS = 5.0
# After the database was away, or this machine slept, every machine looks silent for a moment.
WATCHED_SECONDS = 60.0
# By then every worker has looked whether it can read the files of a lost job.
OFFERED_SECONDS = 30.0
# These need no files of an earlier attempt.
_BEGIN_ANEW = {"train", "find_learning_rate"}


class LostMachines:
    """What one worker does about the machines of others that are gone."""

    def __init__(
        self, settings: Settings, database: Database, claimant: Claimant, hardware: Hardware
    ) -> None:
        self._settings, self._database = settings, database
        self._claimant, self._hardware = claimant, hardware
        self._looked = -1e9
        self._silent: dict[tuple[str, str], float] = {}
        self._offered: dict[UUID, float] = {}

    async def look(self) -> None:
        """Check the machines. After a gap between two checks, silence is measured anew."""
        moment = time.monotonic()
        if moment - self._looked < LOOK_EVERY_SECONDS:
            return
        if moment - self._looked > 4 * LOOK_EVERY_SECONDS:
            self._silent.clear()
            self._offered.clear()
        self._looked = moment
        await self._call_gone(moment)
        await self._offer(moment)

    async def _call_gone(self, moment: float) -> None:
        timeout = self._settings.machine_timeout
        async with self._database.read() as session:
            rows = await session.scalars(
                silent_machines(timeout).where(Machine.name != self._claimant.machine)
            )
            found = {(row.name, row.last_seen_at.isoformat()) for row in rows}
        self._silent = {key: self._silent.get(key, moment) for key in found}
        watched = min(WATCHED_SECONDS, timeout.total_seconds())
        for (name, _), since in self._silent.items():
            if moment - since < watched:
                continue
            async with self._database.write() as session:
                released = await forget_machine(session, name, silent_for=timeout)
            if released is not None:
                log.warning("marked a machine as gone", machine=name, jobs=released)

    async def _offer(self, moment: float) -> None:
        async with self._database.read() as session:
            jobs = [
                (job, await list_checkpoints(session, job.id))
                for job in await lost_jobs(session, self._claimant.machine)
            ]
            stores = await read_stores(session, self._settings)
        self._offered = {job.id: self._offered.get(job.id, moment) for job, _ in jobs}
        for job, checkpoints in jobs:
            lost = str(job.machine)
            can_read = await asyncio.to_thread(can_go_on, self._settings, job, checkpoints)
            if can_read and self._fits(job, stores):
                await self._take(job, lost, self._claimant.machine)
            elif not checkpoints and job.kind in _BEGIN_ANEW:
                await self._take(job, lost, None)
            elif moment - self._offered[job.id] >= OFFERED_SECONDS:
                async with self._database.write() as session:
                    failed = await fail_lost(session, job.id, lost)
                if failed:
                    log.warning(
                        "marked a job as failed because its machine is gone", job=str(job.id), machine=lost
                    )

    async def _take(self, job: TrainingJob, lost: str, machine: str | None) -> None:
        has_run = await asyncio.to_thread(run_directory(self._settings, job.id).is_dir)
        async with self._database.write() as session:
            taken = await take_over(session, job.id, lost, machine, anew=not has_run)
        if taken:
            log.info("moving a job from a machine that is gone", job=str(job.id), machine=lost)

    def _fits(self, job: TrainingJob, stores: Stores) -> bool:
        if job.target != "local":
            return bool(stores.names(job.target))
        names = [gpu.name.casefold() for gpu in self._hardware.gpus]
        wanted = (job.gpu_type or "").casefold()
        return job.gpus <= len(names) and (job.gpus == 0 or any(wanted in name for name in names))


def can_go_on(settings: Settings, job: TrainingJob, checkpoints: list[Checkpoint]) -> bool:
    """Whether this machine can read what the next attempt of a job begins with. Plain file work."""
    run_dir = run_directory(settings, job.id)
    if job.kind in MODEL_TASK_KINDS:
        return Path(str(job.config.get("model"))).exists()
    # By their names in the run's own folder: what a run says about paths is not believed.
    saved = [f"checkpoints/{Path(row.path).name}" for row in checkpoints]
    return run_dir.is_dir() and (not saved or any(is_folder_beneath(run_dir, name) for name in saved))


async def come_back(settings: Settings, database: Database, claimant: Claimant, provider: Provider) -> None:
    """End the trainings whose jobs were taken from this machine while it was gone; then it counts as back."""
    async with database.read() as session:
        gone_at = await session.scalar(select(Machine.gone_at).where(Machine.name == claimant.machine))
    if gone_at is None:
        return
    log.warning("this machine was marked as gone and its jobs were moved", machine=claimant.machine)
    for run_dir in await asyncio.to_thread(_runs_here, settings.home / "runs"):
        async with database.read() as session:
            job = await session.get(TrainingJob, UUID(run_dir.name))
        # What is active is so on the machine that took the job, in an attempt of its own.
        is_taken = job is not None and job.status in ACTIVE
        await stop_lost_run(provider, run_dir, up_to=job.attempt - 1 if job and is_taken else None)
    async with database.write() as session:
        await session.execute(
            update(Machine)
            .where(Machine.name == claimant.machine, Machine.gone_at == gone_at)
            .values(gone_at=None)
        )


async def stop_lost_run(provider: Provider, run_dir: Path, *, up_to: int | None) -> None:
    """End what this host runs of a job that was taken from it. `up_to`: newer attempts are its taker's."""
    running = await asyncio.to_thread(_attempt_here, run_dir)
    if running is None or (up_to is not None and running > up_to):
        return
    log.warning(
        "stopping a training whose job was moved from this machine", job=run_dir.name, attempt=running
    )
    try:
        await provider.stop(run_dir, force=True)
    except ProviderError as problem:
        log.warning("could not stop the training", job=run_dir.name, reason=str(problem))


def _runs_here(runs: Path) -> list[Path]:
    """Run directories, by the ids of their jobs, in which something of this host runs."""
    found = []
    for run_dir in sorted(runs.iterdir()) if runs.is_dir() else ():
        try:
            UUID(run_dir.name)
        except ValueError:
            continue
        if _attempt_here(run_dir) is not None:
            found.append(run_dir)
    return found


def _attempt_here(run_dir: Path) -> int | None:
    """The attempt that runs on this very host; None: nothing does."""
    files = AgentFiles(run_dir)
    if not is_held(files.lock):
        return None
    try:
        record = files.read_agent()
    except ValueError:
        return None
    return record.attempt if record is not None and record.host == socket.gethostname() else None
