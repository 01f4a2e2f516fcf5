"""A job whose lease this worker holds: read it, change it, and keep the lease meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.lease import RENEW_EVERY_SECONDS, LeaseLost, holding, renew
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.retries import persist

Result = TypeVar("Result")

log = structlog.get_logger("bloom.worker")


class HeldJob:
    """`row` is the job as this worker last saw it while it held the lease."""

    def __init__(self, database: Database, job: TrainingJob) -> None:
        assert job.lease_token is not None
        self.database = database
        self.row = job
        self._token: UUID = job.lease_token
        self._renewed = time.monotonic()
        self.log = log.bind(job=str(job.id))

    async def change(self, work: Callable[[AsyncSession, TrainingJob], Awaitable[Result]]) -> Result:
        """One transaction with the locked row, repeated while the database is away."""

        async def changed() -> Result:
            async with self.database.write() as session:
                row = await holding(session, self.row.id, self._token)
                result = await work(session, row)
            if row.lease_token == self._token:
                self.row = row
            return result

        return await persist(changed, self.log)

    async def refresh(self) -> None:
        """See what people asked for, and keep the lease."""
        due = time.monotonic() - self._renewed >= RENEW_EVERY_SECONDS

        async def looked() -> None:
            if due:
                async with self.database.write() as session:
                    if not await renew(session, self.row.id, self._token):
                        raise LeaseLost
                self._renewed = time.monotonic()
            async with self.database.read() as session:
                row = await session.get(TrainingJob, self.row.id)
            if row is None or row.lease_token != self._token:
                raise LeaseLost
            self.row = row

        await persist(looked, self.log)

    async def meanwhile(self, work: Awaitable[Result]) -> Result:
        """Keep the lease during slow work, such as a download of a dataset."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=RENEW_EVERY_SECONDS))[0]:
            await self.refresh()
        return task.result()
