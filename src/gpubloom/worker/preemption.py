"""Preemption of playgrounds: a model that is only loaded for a chat does not keep a job from its device.

Another playground has to wait until the model was idle for a moment; any other job does not.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.lease import Claimant, FreeSlots, waiting_for
from gpubloom.server.jobs.states import ACTIVE, after, can
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground.endpoint import last_use
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom.worker")

LOOK_EVERY_SECONDS = 1.0
# Somebody who reads an answer is still in a conversation.
LEFT_ALONE = timedelta(seconds=30)


class Preemption:
    """What one worker does about jobs that find no free device."""

    def __init__(self, settings: Settings, database: Database, claimant: Claimant, *, gpus: int) -> None:
        self._settings = settings
        self._database = database
        self._claimant = claimant
        self._gpus = gpus
        self._looked = -1e9

    async def make(self, free: FreeSlots) -> None:
        """Ask the playground that was used least recently to end, for a job that waits for its device."""
        if time.monotonic() - self._looked < LOOK_EVERY_SECONDS:
            return
        self._looked = time.monotonic()
        if free.gpus < self._gpus:
            taken = FreeSlots(gpus=self._gpus, gpu_names=free.gpu_names)
            await self._make(taken, TrainingJob.gpus > 0)
        if not free.side_slot:
            await self._make(FreeSlots(side_slot=True), TrainingJob.gpus == 0)

    async def _make(self, taken: FreeSlots, on_device: ColumnElement[bool]) -> None:
        async with self._database.read() as session:
            waiting = await session.scalar(
                select(TrainingJob)
                .where(*waiting_for(self._claimant, taken))
                .order_by(TrainingJob.queued_at)
                .limit(1)
            )
            holders = await self._holders(session, on_device)
        # One at a time: a playground that is ending already frees its device.
        if waiting is None or not holders or any(job.status == "cancelling" for job in holders):
            return
        job, used = await asyncio.to_thread(self._least_recently_used, holders)
        if waiting.kind == "serve" and now() - used < LEFT_ALONE:
            return
        async with self._database.write() as session:
            row = await lock_job(session, job.id)
            if row is None or not can("cancel", row.status) or row.status not in ACTIVE:
                return
            row.status = after("cancel", row.status)
            row.want = "cancel"
            row.control_version += 1
            row.error_code = "gave_way"
            row.error_message = "The model was unloaded because another job needed its device."
            await announce(session, row)
        log.info("unloading a playground for another job", job=str(job.id), waiting=str(waiting.id))

    async def _holders(self, session: AsyncSession, on_device: ColumnElement[bool]) -> Sequence[TrainingJob]:
        rows = await session.scalars(
            select(TrainingJob).where(
                and_(
                    TrainingJob.kind == "serve",
                    TrainingJob.status.in_(ACTIVE),
                    TrainingJob.machine == self._claimant.machine,
                    on_device,
                )
            )
        )
        return rows.all()

    def _least_recently_used(self, holders: Sequence[TrainingJob]) -> tuple[TrainingJob, datetime]:
        used = {job.id: last_use(run_directory(self._settings, job.id)) or job.queued_at for job in holders}
        job = min(holders, key=lambda each: used[each.id])
        return job, used[job.id]
