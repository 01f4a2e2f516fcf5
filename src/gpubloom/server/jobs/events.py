"""A job's changes: each gets a position, the newest are kept, and browsers follow them live.

Browsers that reconnect say the last position that they saw and get what came after it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import JobEvent, TrainingJob

# How many changes a browser may miss and still catch up; at a few a second, some twenty minutes.
KEPT = 5_000
_PRUNE_EVERY = 500

log = structlog.get_logger("bloom")
POLL_SECONDS = 0.2
TICK_SECONDS = 15
_EVENTS_AT_ONCE = 200
_VIEWER_QUEUE = 500


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


@dataclass(frozen=True)
class StreamEvent:
    """One event as a browser gets it."""

    position: int
    kind: str
    data: dict[str, Any]


@dataclass
class _Tailer:
    viewers: set[asyncio.Queue[StreamEvent | None]] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class JobStreams:
    """All tailers of one server process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tailers: dict[UUID, _Tailer] = {}

    async def close(self) -> None:
        """End every stream, so that the server can stop."""
        for tailer in list(self._tailers.values()):
            if tailer.task is not None:
                tailer.task.cancel()
            for queue in tailer.viewers:
                _push(queue, None)

    async def follow(self, job_id: UUID, after: int | None) -> AsyncIterator[StreamEvent | None]:
        """Events after a position, first from the database, then live; without one, from now on.

        Yields None now and then, so that whoever serves the stream can look whether it still may.
        """
        queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue(_VIEWER_QUEUE)
        newest = await self._position(job_id)
        position = newest if after is None or after > newest else after
        # Joined before catching up: what arrives meanwhile waits in the queue, repeated ones are skipped.
        self._join(job_id, queue, newest)
        try:
            async for event in self._missed(job_id, position, until=newest):
                position = event.position
                yield event
            next_tick = asyncio.get_running_loop().time() + TICK_SECONDS
            while True:
                left = next_tick - asyncio.get_running_loop().time()
                if left <= 0:
                    next_tick += TICK_SECONDS
                    yield None
                    continue
                try:
                    live = await asyncio.wait_for(queue.get(), left)
                except TimeoutError:
                    continue
                if live is None:
                    return
                if live.position > position:
                    position = live.position
                    yield live
        finally:
            self._leave(job_id, queue)

    async def _missed(self, job_id: UUID, position: int, *, until: int) -> AsyncIterator[StreamEvent]:
        first = True
        while position < until:
            async with self._database.read() as session:
                rows = await events_after(session, job_id, position, _EVENTS_AT_ONCE)
            if first and (not rows or rows[0].position > position + 1):
                # What was missed has been pruned.
                yield StreamEvent(until, "reset", {})
                return
            if not rows:
                # The job was deleted meanwhile.
                return
            first = False
            for row in rows:
                position = row.position
                yield StreamEvent(row.position, row.kind, row.data)

    async def _position(self, job_id: UUID) -> int:
        async with self._database.read() as session:
            return await session.scalar(select(TrainingJob.position).where(TrainingJob.id == job_id)) or 0

    def _join(self, job_id: UUID, queue: asyncio.Queue[StreamEvent | None], position: int) -> None:
        tailer = self._tailers.setdefault(job_id, _Tailer())
        tailer.viewers.add(queue)
        if tailer.task is None:
            tailer.task = asyncio.create_task(self._tail(job_id, tailer, position))

    def _leave(self, job_id: UUID, queue: asyncio.Queue[StreamEvent | None]) -> None:
        tailer = self._tailers.get(job_id)
        if tailer is None:
            return
        tailer.viewers.discard(queue)
        if not tailer.viewers:
            if tailer.task is not None:
                tailer.task.cancel()
            self._tailers.pop(job_id, None)

    async def _tail(self, job_id: UUID, tailer: _Tailer, position: int) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                async with self._database.read() as session:
                    rows = await events_after(session, job_id, position, _EVENTS_AT_ONCE)
            except SQLAlchemyError as error:
                # The database is away for a moment; browsers wait.
                log.warning("the job stream could not be read", job=str(job_id), reason=type(error).__name__)
                await asyncio.sleep(1)
                continue
            for row in rows:
                position = row.position
                event = StreamEvent(row.position, row.kind, row.data)
                for queue in list(tailer.viewers):
                    _push(queue, event)


def _push(queue: asyncio.Queue[StreamEvent | None], event: StreamEvent | None) -> None:
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        # Too slow: forget what waits and end the stream; the browser comes back by itself.
        while not queue.empty():
            with contextlib.suppress(asyncio.QueueEmpty):
                queue.get_nowait()
        queue.put_nowait(None)
