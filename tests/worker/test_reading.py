"""A run is read in pieces, each exactly once, also when the database forgets what it had."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from sqlalchemy import delete, insert, select

from gpubloom.server.db.database import Database
from gpubloom.server.jobs import recording
from gpubloom.server.jobs.events import read_update
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.run_watch import RunWatch
from gpubloom.server.jobs.tables import JobEvent, MetricBucket, MetricPoint, TrainingJob
from gpubloom.server.settings import Settings
from gpubloom.traincard import Reporter
from gpubloom.worker import run_events
from gpubloom.worker.held_job import HeldJob
from gpubloom.worker.run_events import RunEvents
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job

STEPS = 400

# What a run adds to.
_GROWING = (MetricPoint, MetricBucket, JobEvent)


@pytest.fixture
def job(installation: Installation) -> TrainingJob:
    ada = installation.add_user("Ada")
    return add_job(installation, ada, status="running", attempt=1, lease_token=uuid4())


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "PIECE_BYTES", 2_000)
    monkeypatch.setattr(run_events, "_PIECES_AT_ONCE", 3)


def _following(
    installation: Installation, job: TrainingJob, scenario: Callable[[Database, RunEvents], Awaitable[None]]
) -> None:
    settings = Settings(_env_file=None, home=installation.home, database_url=installation.database_url)
    with Reporter(run_directory(settings, job.id), telemetry_seconds=0) as reporter:
        for step in range(1, STEPS + 1):
            reporter.metrics({"loss": 1.0 / step, "grad_norm": float(step)}, step=step)

    async def run() -> None:
        database = Database(installation.database_url)
        try:
            run_dir = run_directory(settings, job.id)
            watch = RunWatch(run_dir, has_history=False)
            await scenario(database, RunEvents(HeldJob(database, job), run_dir, watch))
        finally:
            await database.close()

    asyncio.run(run())


def _check_everything_is_stored_once(installation: Installation, job: TrainingJob) -> None:
    points = installation.all(MetricPoint)
    for series_id in {point.series_id for point in points}:
        assert sorted(point.x for point in points if point.series_id == series_id) == [*range(1, STEPS + 1)]
    counted: dict[tuple[int, int], int] = {}
    for bucket in installation.all(MetricBucket):
        key = (bucket.series_id, bucket.level)
        counted[key] = counted.get(key, 0) + bucket.count
    assert set(counted.values()) == {STEPS}
    row = installation.get(TrainingJob, job.id)
    assert row is not None
    positions = sorted(event.position for event in installation.all(JobEvent))
    assert positions == list(range(1, row.position + 1))
    assert row.summary["step"] == STEPS


def test_a_run_is_stored_in_many_transactions_that_name_every_point_once(
    installation: Installation, job: TrainingJob
) -> None:
    async def scenario(database: Database, reading: RunEvents) -> None:
        while await reading.store_new():
            pass
        async with database.read() as session:
            row = await session.get_one(TrainingJob, job.id)
            update = await read_update(session, job.id, 0, row.position)
        assert row.position > STEPS // 50
        assert [series.x for series in update.series] == [[*range(1, STEPS + 1)]] * 2

    _following(installation, job, scenario)
    _check_everything_is_stored_once(installation, job)


def test_what_the_database_forgot_is_read_again(installation: Installation, job: TrainingJob) -> None:
    async def scenario(database: Database, reading: RunEvents) -> None:
        assert await reading.store_new()
        async with database.read() as session:
            backup = {
                table: [dict(row) for row in (await session.execute(select(table.__table__))).mappings()]
                for table in _GROWING
            }
            before = await session.get_one(TrainingJob, job.id)
        assert await reading.store_new()
        async with database.write() as session:
            for table, rows in backup.items():
                await session.execute(delete(table))
                await session.execute(insert(table.__table__), rows)
            row = await session.get_one(TrainingJob, job.id)
            row.cursor, row.summary, row.position = before.cursor, before.summary, before.position
        while await reading.store_new():
            pass

    _following(installation, job, scenario)
    _check_everything_is_stored_once(installation, job)
