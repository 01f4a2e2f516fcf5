"""The live stream: nothing missed, nothing twice, one tailer for all viewers. On both databases."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.jobs import events
from gpubloom.server.jobs.events import JobStreams, StreamEvent, announce, lock_job
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job
from tests.waiting import TIMEOUT_SECONDS


@pytest.fixture
def job(installation: Installation, member: User) -> TrainingJob:
    return add_job(installation, member)


Say = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def _streams(installation: Installation, job: TrainingJob) -> AsyncIterator[tuple[JobStreams, Say]]:
    database = Database(installation.database_url)
    streams = JobStreams(database)

    async def say(number: int) -> None:
        async with database.write() as session:
            row = await lock_job(session, job.id)
            assert row is not None
            await announce(session, row, "update", {"number": number})

    yield streams, say
    await streams.close()
    await database.close()


async def _take(source: AsyncIterator[StreamEvent | None], count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(found) < count:
            event = await anext(source)
            if event is not None:
                found.append(event.data.get("number", event.kind))
    return found


async def _joined(streams: JobStreams, job: TrainingJob, count: int) -> None:
    """Wait until so many viewers are fed."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while job.id not in streams._tailers or len(streams._tailers[job.id].viewers) < count:
            await asyncio.sleep(0.01)


def test_a_viewer_gets_what_it_missed_and_then_what_happens(
    installation: Installation, job: TrainingJob
) -> None:
    async def scenario() -> None:
        async with _streams(installation, job) as (streams, say):
            for number in range(5):
                await say(number)
            viewer = streams.follow(job.id, 2)
            assert await _take(viewer, 3) == [2, 3, 4]
            await say(5)
            await say(6)
            assert await _take(viewer, 2) == [5, 6]
            await viewer.aclose()

    asyncio.run(scenario())


def test_many_viewers_share_one_tailer(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: set[object] = set()
    real = events.events_after

    async def noted(*arguments: Any) -> Any:
        readers.add(asyncio.current_task())
        return await real(*arguments)

    monkeypatch.setattr(events, "events_after", noted)

    async def scenario() -> None:
        async with _streams(installation, job) as (streams, say):
            viewers = [streams.follow(job.id, 0) for _ in range(50)]
            waiting = [asyncio.create_task(_take(viewer, 3)) for viewer in viewers]
            await _joined(streams, job, 50)
            for number in range(3):
                await say(number)
            assert await asyncio.gather(*waiting) == [[0, 1, 2]] * 50
            for viewer in viewers:
                await viewer.aclose()

    asyncio.run(scenario())
    assert len(readers) == 1


def test_a_viewer_that_was_away_too_long_is_told_to_load_anew(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    monkeypatch.setattr(events, "_PRUNE_EVERY", 10)

    async def scenario() -> None:
        async with _streams(installation, job) as (streams, say):
            for number in range(10):
                await say(number)
            viewer = streams.follow(job.id, 2)
            assert await _take(viewer, 1) == ["reset"]
            await say(10)
            assert await _take(viewer, 1) == [10]
            await viewer.aclose()

    asyncio.run(scenario())


def test_a_viewer_that_reads_too_slowly_is_cut_off(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_VIEWER_QUEUE", 3)

    async def scenario() -> None:
        async with _streams(installation, job) as (streams, say):
            viewer, prompt = streams.follow(job.id, None), streams.follow(job.id, None)
            firsts = [asyncio.create_task(_take(each, 1)) for each in (viewer, prompt)]
            await _joined(streams, job, 2)
            await say(0)
            await asyncio.gather(*firsts)
            for number in range(1, 8):
                await say(number)
                assert await _take(prompt, 1) == [number]
            await prompt.aclose()
            with pytest.raises(StopAsyncIteration):
                await _take(viewer, 10)

    asyncio.run(scenario())
