"""The live stream: nothing missed, nothing twice, one tailer and one encoding for all viewers."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs import events, stream_routes, streams
from gpubloom.server.jobs.events import JobUpdate, announce, lock_job
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.stream_frames import TICK, StreamEvent
from gpubloom.server.jobs.streams import JobStreams
from gpubloom.server.jobs.tables import JobEvent, TrainingJob
from gpubloom.traincard import RunEvent
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job, metric, system
from tests.waiting import TIMEOUT_SECONDS, wait_until


@pytest.fixture
def job(installation: Installation, member: User) -> TrainingJob:
    return add_job(installation, member)


@dataclass
class Live:
    """A job whose changes are told, and those who follow it."""

    database: Database
    streams: JobStreams
    job: TrainingJob

    async def say(self, *said: RunEvent, checkpoints: bool = False, **changes: Any) -> int:
        """One transaction as a worker makes it; the position after it."""
        async with self.database.write() as session:
            row = await lock_job(session, self.job.id)
            assert row is not None
            points = await store_points(session, row, Batch(said))
            for name, value in changes.items():
                setattr(row, name, value)
            return await announce(session, row, points=points, checkpoints=checkpoints)

    async def step(self, number: int) -> None:
        await self.say(metric(number, float(number)))

    async def joined(self, count: int) -> None:
        """Wait until so many viewers are fed."""
        tailers = self.streams._tailers
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.job.id not in tailers or len(tailers[self.job.id].viewers) < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def _live(installation: Installation, job: TrainingJob) -> AsyncIterator[Live]:
    database = Database(installation.database_url)
    live = Live(database, JobStreams(database), job)
    yield live
    await live.streams.close()
    await database.close()


def _read(event: StreamEvent) -> tuple[str, int, dict[str, Any]]:
    """Kind, position and data, as a browser reads them."""
    assert event.frame.endswith(b"\n\n")
    fields = dict(line.split(": ", 1) for line in event.frame.decode().strip().split("\n"))
    data = json.loads(fields["data"])
    # What was sent is what the API's description promises.
    assert JobUpdate.model_validate(data) is not None
    return fields["event"], int(fields["id"]), data


async def _next(viewer: AsyncIterator[StreamEvent]) -> tuple[str, int, dict[str, Any]]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (event := await anext(viewer)) is TICK:
            pass
    return _read(event)


async def _until(viewer: AsyncIterator[StreamEvent], position: int) -> list[tuple[str, int, dict[str, Any]]]:
    found = [await _next(viewer)]
    while found[-1][1] < position:
        found.append(await _next(viewer))
    return found


def _steps(found: list[tuple[str, int, dict[str, Any]]]) -> list[int]:
    """The steps of all points, in the order in which they came."""
    return [x for _, _, data in found for series in data.get("series", []) for x in series["x"]]


def _merge(found: list[tuple[str, int, dict[str, Any]]]) -> dict[str, Any]:
    """The job as a browser has it after these events: the rules of `use-job-live.ts`."""
    job: dict[str, Any] = {"summary": {}}
    position = None
    for _, after, data in found:
        assert data.get("since") in {None, position}, "a delta follows on what the viewer has"
        position = after
        changes = dict(data.get("job") or {})
        summary = changes.pop("summary", None) or {}
        for name, value in summary.items():
            if name in {"values", "system"}:
                both = {**job["summary"].get(name, {}), **value}
                job["summary"][name] = {key: each for key, each in both.items() if each is not None}
            else:
                job["summary"][name] = value
        job.update(changes)
    return job


def test_a_viewer_gets_what_it_missed_at_once_and_then_what_happens(
    installation: Installation, job: TrainingJob
) -> None:
    async def scenario() -> None:
        async with _live(installation, job) as live:
            for number in range(1, 6):
                await live.step(number)
            viewer = live.streams.follow(job.id, 2)
            first = await _next(viewer)
            assert (first[0], first[1], _steps([first])) == ("delta", 5, [3, 4, 5])
            await live.step(6)
            await live.step(7)
            assert _steps(await _until(viewer, 7)) == [6, 7]
            await viewer.aclose()

    asyncio.run(scenario())


def test_points_arrive_as_they_were_reported(installation: Installation, job: TrainingJob) -> None:
    async def scenario() -> None:
        async with _live(installation, job) as live:
            said = [metric(1, 0.5), metric(2, "NaN"), metric(3, "-Infinity"), system(9, {"ram/used": 3.0})]
            await live.say(*said)
            viewer = live.streams.follow(job.id, 0)
            _, _, data = await _next(viewer)
            loss, memory = data["series"]
            assert (loss["name"], loss["rank"], loss["axis"]) == ("train/loss", 0, "step")
            assert (loss["x"], loss["attempt"]) == ([1, 2, 3], [1, 1, 1])
            assert loss["value"] == [0.5, "NaN", "-Infinity"]
            assert loss["time"] == [event.t for event in said[:3]]
            assert (memory["axis"], memory["value"]) == ("time", [3.0])
            await viewer.aclose()

    asyncio.run(scenario())


def test_an_event_has_only_what_changed_and_the_changes_add_up(
    installation: Installation, job: TrainingJob
) -> None:
    evaluated = {"step": 1, "value": 3.0}

    async def scenario() -> None:
        async with _live(installation, job) as live:
            await live.say(
                status="running",
                summary={
                    "step": 1, "total_steps": 9, "facts": {"device": "cpu"}, "system": {"a": 1.0, "b": 2.0},
                    "values": {"train/loss": {"step": 1, "value": 2.0}, "eval/loss": evaluated},
                },
            )  # fmt: skip
            viewer = live.streams.follow(job.id, None)
            seen = [await _next(viewer)]
            assert "since" not in seen[0][2]
            assert seen[0][2]["job"]["status"] == "running"

            after = await live.say(
                checkpoints=True,
                error_message="Late.",
                start_time=datetime(2026, 1, 2, tzinfo=UTC),
                summary={
                    "step": 2, "total_steps": 9, "facts": {"device": "cpu"}, "system": {"a": 1.5},
                    "values": {"train/loss": {"step": 2, "value": "NaN"}, "eval/loss": evaluated},
                },
            )  # fmt: skip
            seen += await _until(viewer, after)
            assert len(seen) == 2
            assert seen[1][2] == {
                "since": 1,
                "checkpoints": True,
                "job": {
                    "error_message": "Late.",
                    "start_time": "2026-01-02T00:00:00Z",
                    "summary": {
                        "step": 2,
                        "values": {"train/loss": {"step": 2, "value": "NaN"}},
                        "system": {"a": 1.5, "b": None},
                    },
                },
            }
            # Nothing but points: nothing about the job.
            after = await live.say(metric(3, 1.0))
            seen += await _until(viewer, after)
            assert "job" not in seen[-1][2]

            # Whoever comes now is told the same by one event.
            late = live.streams.follow(job.id, 0)
            assert _merge([await _next(late)]) == _merge(seen)
            for each in (viewer, late):
                await each.aclose()

    asyncio.run(scenario())


def test_many_viewers_share_one_tailer_and_the_same_bytes(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    real = streams.encode

    def noted(update: JobUpdate) -> str:
        encoded.append(1)
        return real(update)

    monkeypatch.setattr(streams, "encode", noted)

    async def frames(viewer: AsyncIterator[StreamEvent], until: int) -> list[StreamEvent]:
        found = [await anext(viewer)]
        while found[-1].position < until:
            found.append(await anext(viewer))
        return found

    async def scenario() -> None:
        async with _live(installation, job) as live:
            viewers = [live.streams.follow(job.id, 0) for _ in range(50)]
            waiting = [asyncio.create_task(frames(viewer, 3)) for viewer in viewers]
            await live.joined(50)
            for number in range(1, 4):
                await live.step(number)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await asyncio.gather(*waiting)
            assert len({id(event) for each in found for event in each}) == len(encoded)
            for each in found:
                assert _steps([_read(event) for event in each]) == [1, 2, 3]
            for viewer in viewers:
                await viewer.aclose()

    asyncio.run(scenario())


@pytest.mark.long
def test_viewers_of_different_positions_all_see_every_point_once(
    installation: Installation, job: TrainingJob
) -> None:
    """Also one that loaded the curves after the tailer last looked."""

    async def scenario() -> None:
        async with _live(installation, job) as live:
            viewers = {0: live.streams.follow(job.id, 0)}
            seen = {0: [await _next(viewers[0])]}
            for number in range(1, 8):
                await live.step(number)
                viewers[number] = live.streams.follow(job.id, number)
                seen[number] = [await _next(viewers[number])]
            await live.step(8)
            for after, viewer in viewers.items():
                if seen[after][-1][1] < 8:
                    seen[after] += await _until(viewer, 8)
                assert _steps(seen[after]) == list(range(after + 1, 9)), after
                await viewer.aclose()

    asyncio.run(scenario())


def test_a_viewer_that_was_away_too_long_is_told_to_load_anew(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    monkeypatch.setattr(events, "_PRUNE_EVERY", 10)

    async def scenario() -> None:
        async with _live(installation, job) as live:
            for number in range(1, 11):
                await live.step(number)
            viewer = live.streams.follow(job.id, 2)
            assert (await _next(viewer))[:2] == ("reset", 10)
            await live.step(11)
            assert _steps([await _next(viewer)]) == [11]
            await viewer.aclose()

    asyncio.run(scenario())


def test_more_points_than_a_browser_should_be_sent_are_to_be_loaded(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_LIVE_POINTS", 3)

    async def scenario() -> None:
        async with _live(installation, job) as live:
            for number in range(1, 5):
                await live.step(number)
            viewer, later = live.streams.follow(job.id, 0), live.streams.follow(job.id, 1)
            _, _, data = await _next(viewer)
            assert (data["reload"], "series" in data) == (True, False)
            assert _steps([await _next(later)]) == [2, 3, 4]
            for each in (viewer, later):
                await each.aclose()

    asyncio.run(scenario())


def test_a_viewer_is_told_to_load_anew_when_the_database_was_set_back(
    installation: Installation, job: TrainingJob
) -> None:
    async def scenario() -> None:
        async with _live(installation, job) as live:
            for number in range(1, 4):
                await live.step(number)
            viewer = live.streams.follow(job.id, 3)
            await _next(viewer)
            async with live.database.write() as session:
                row = await lock_job(session, job.id)
                assert row is not None
                row.position = 1
                await session.execute(
                    delete(JobEvent).where(JobEvent.job_id == job.id, JobEvent.position > 1)
                )
            assert (await _next(viewer))[:2] == ("reset", 1)
            ahead = live.streams.follow(job.id, 3)
            assert (await _next(ahead))[:2] == ("reset", 1)
            for each in (viewer, ahead):
                await each.aclose()

    asyncio.run(scenario())


def test_streams_end_when_the_job_is_deleted(installation: Installation, job: TrainingJob) -> None:
    async def scenario() -> None:
        async with _live(installation, job) as live:
            viewer = live.streams.follow(job.id, None)
            await _next(viewer)
            async with live.database.write() as session:
                await session.execute(delete(TrainingJob).where(TrainingJob.id == job.id))
            with pytest.raises(StopAsyncIteration):
                await _next(viewer)

    asyncio.run(scenario())


def test_a_viewer_that_reads_too_slowly_is_cut_off(
    installation: Installation, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_VIEWER_QUEUE", 3)

    async def scenario() -> None:
        async with _live(installation, job) as live:
            viewer, prompt = live.streams.follow(job.id, None), live.streams.follow(job.id, None)
            for each in (viewer, prompt):
                await _next(each)
            for number in range(1, 8):
                await live.step(number)
                assert _steps([await _next(prompt)]) == [number]
            await prompt.aclose()
            with pytest.raises(StopAsyncIteration):
                await _until(viewer, 8)

    asyncio.run(scenario())


def test_over_http_events_come_with_signs_of_life_until_somebody_is_signed_out(
    installation: Installation,
    server: Server,
    member: User,
    job: TrainingJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "TICK_SECONDS", 0.02)
    secret, session = installation.add_session(member)
    ada = server.browser().signed_in_as(secret, session.csrf_token)
    asked: list[object] = []
    real = stream_routes.still_valid

    async def noted(*arguments: Any) -> bool:
        asked.append(arguments)
        return await real(*arguments)

    monkeypatch.setattr(stream_routes, "still_valid", noted)
    with ThreadPoolExecutor(1) as thread:
        answering = thread.submit(ada.get, f"/api/training-jobs/{job.id}/stream", params={"after": 0})
        wait_until(lambda: len(asked) > 1)
        installation.change(session, expires=now())
        answer = answering.result(TIMEOUT_SECONDS)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    first, *rest = answer.text.split("\n\n")
    assert first.startswith('id: 0\nevent: delta\ndata: {"job":{')
    assert set(rest) == {": ping", ""}
