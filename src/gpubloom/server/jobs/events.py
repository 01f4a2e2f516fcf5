"""Gives every change of a job its position, and keeps the newest ones for browsers that reconnect."""

from typing import Any
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.jobs.tables import JobEvent, TrainingJob

# How many changes a browser may miss and still catch up; at a few a second, some twenty minutes.
KEPT = 5_000
_PRUNE_EVERY = 500


async def announce(session: AsyncSession, job: TrainingJob, kind: str, data: dict[str, Any]) -> int:
    """Add an event at the job's next position. The row must have been locked by this transaction."""
    job.position += 1
    session.add(JobEvent(job_id=job.id, position=job.position, kind=kind, data=data))
    if job.position % _PRUNE_EVERY == 0:
        await session.execute(
            delete(JobEvent).where(JobEvent.job_id == job.id, JobEvent.position <= job.position - KEPT)
        )
    return job.position


async def lock_job(session: AsyncSession, job_id: UUID) -> TrainingJob | None:
    """The job's row, locked: two changes get two positions, in the order of their commits."""
    return await session.scalar(
        select(TrainingJob)
        .where(TrainingJob.id == job_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


async def events_after(session: AsyncSession, job_id: UUID, position: int, limit: int) -> list[JobEvent]:
    """What happened after a position, in order."""
    rows = await session.scalars(
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.position > position)
        .order_by(JobEvent.position)
        .limit(limit)
    )
    return list(rows)
