"""Browsers follow a job live: one tailer for a job and server process, however many look at it.

The tailer looks for a new position, reads what changed since the last one in one snapshot of the database,
and encodes it once; every viewer is handed the same bytes. Viewers join between two positions of the tailer:
they first get the whole state at its position, with the points that they missed up to there, and then every
event. So no viewer misses a change or sees one twice, and a delta always follows on the state that its
viewers have.
"""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import KEPT, JobState, JobUpdate, Pruned, encode, read_state, read_update
from gpubloom.server.jobs.stream_frames import TICK, StreamEvent, reset_event
from gpubloom.server.jobs.tables import TrainingJob

log = structlog.get_logger("bloom")

POLL_SECONDS = 0.2
TICK_SECONDS = 15
_VIEWER_QUEUE = 500
_MOST_FIRST = 16


Queue = asyncio.Queue[StreamEvent | None]


def _delta(position: int, update: JobUpdate) -> StreamEvent:
    data = encode(update)
    return StreamEvent(position, f"id: {position}\nevent: delta\ndata: {data}\n\n".encode())


class _Tailer:
    """One job's changes for all its viewers in this process."""

    def __init__(self, database: Database, job_id: UUID) -> None:
        self._database = database
        self._job_id = job_id
        self._state: JobState | None = None
        # The first event for viewers that reconnect, by the last position that they saw.
        self._first: dict[int | None, StreamEvent] = {}
        self._lock = asyncio.Lock()
        self.viewers: set[Queue] = set()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                async with self._lock:
                    is_there = await self._advance()
            except SQLAlchemyError as error:
                # The database does not answer at the moment; viewers wait.
                log.warning(
                    "could not read the changes of a job", job=str(self._job_id), reason=type(error).__name__
                )
                await asyncio.sleep(1)
                continue
            if not is_there:
                # A request for a deleted job gets 404.
                self.push(None)

    async def first_event(self, after: int | None) -> StreamEvent | None:
        """Brings a viewer that saw everything up to a position to where the tailer is; None: the job is gone.

        Without a position it is told nothing of the past but the job's state.
        """
        async with self._lock:
            if self._state is None or (after is not None and after > self._state.position):
                await self._advance()
            if self._state is None:
                return None
            if after not in self._first:
                if len(self._first) >= _MOST_FIRST:
                    self._first.clear()
                self._first[after] = await self._read_first(self._state, after)
            return self._first[after]

    async def _read_first(self, state: JobState, after: int | None) -> StreamEvent:
        update = JobUpdate()
        if after is not None:
            if not 0 <= state.position - after <= KEPT:
                return reset_event(state.position)
            try:
                async with self._database.read() as session:
                    update = await read_update(session, self._job_id, after, state.position)
            except Pruned:
                return reset_event(state.position)
        update.job = state.whole()
        return _delta(state.position, update)

    async def _advance(self) -> bool:
        """Send what is new to the viewers; returns whether the job still exists."""
        before = self._state
        async with self._database.read() as session:
            newest = await session.scalar(select(TrainingJob.position).where(TrainingJob.id == self._job_id))
            if before is not None and newest == before.position:
                return True
            state = await read_state(session, self._job_id)
            if state is None:
                return False
            event = None
            if before is not None:
                event = await self._read_event(session, before, state)
        self._state = state
        self._first.clear()
        if event is not None:
            self.push(event)
        return True

    async def _read_event(self, session: AsyncSession, before: JobState, state: JobState) -> StreamEvent:
        if not 0 < state.position - before.position <= KEPT:
            # The database was set back, or this process slept.
            return reset_event(state.position)
        try:
            update = await read_update(session, self._job_id, before.position, state.position)
        except Pruned:
            return reset_event(state.position)
        update.since = before.position
        if (changes := state.changes_since(before)) is not None:
            update.job = changes
        return _delta(state.position, update)

    def push(self, event: StreamEvent | None) -> None:
        for queue in list(self.viewers):
            _push(queue, event)


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
            tailer.push(None)

    async def follow(self, job_id: UUID, after: int | None) -> AsyncGenerator[StreamEvent, None]:
        """Events after a position, the first with all that was missed; without one, from now on.

        Yields TICK now and then, so that whoever serves the stream can look whether it still may.
        """
        queue: Queue = asyncio.Queue(_VIEWER_QUEUE)
        # Joined before catching up: what arrives meanwhile waits in the queue, repeated ones are skipped.
        tailer = self._join(job_id, queue)
        ticking = asyncio.get_running_loop().call_later(TICK_SECONDS, _push, queue, TICK)
        try:
            event = await tailer.first_event(after)
            if event is None:
                return
            position = event.position
            yield event
            while (event := await queue.get()) is not None:
                if event is TICK:
                    ticking = asyncio.get_running_loop().call_later(TICK_SECONDS, _push, queue, TICK)
                    yield event
                elif event.position > position or event.is_reset:
                    position = event.position
                    yield event
        finally:
            ticking.cancel()
            self._leave(job_id, queue)

    def _join(self, job_id: UUID, queue: Queue) -> _Tailer:
        tailer = self._tailers.setdefault(job_id, _Tailer(self._database, job_id))
        tailer.viewers.add(queue)
        if tailer.task is None:
            tailer.task = asyncio.create_task(tailer.run())
        return tailer

    def _leave(self, job_id: UUID, queue: Queue) -> None:
        tailer = self._tailers.get(job_id)
        if tailer is None:
            return
        tailer.viewers.discard(queue)
        if not tailer.viewers:
            if tailer.task is not None:
                tailer.task.cancel()
            self._tailers.pop(job_id, None)


def _push(queue: Queue, event: StreamEvent | None) -> None:
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        # The viewer is too slow: drop its queue and end the stream. The browser reconnects.
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
