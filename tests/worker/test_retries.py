"""Database work is repeated while the database is away, and training goes on; a wrong statement is not."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from structlog.testing import capture_logs

from gpubloom.providers.local.provider import LocalProvider
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.traincard.retry import RetryPolicy
from gpubloom.worker import follower, loop, retries
from gpubloom.worker.retries import DatabaseUnavailable, persist
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.server.installation import Installation
from tests.server.postgres import PostgresMissing, PostgresServer, postgres_server
from tests.worker.machine import Machine

log = structlog.get_logger("test")
# Nothing listens there.
AWAY = "postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM no_such_table",
        "SELEKT 1",
        "INSERT INTO workers (id, name) VALUES (NULL, NULL)",
    ],
)
def test_a_wrong_statement_is_not_tried_again(database_url: str, statement: str) -> None:
    tries = 0

    async def scenario() -> None:
        database = Database(database_url)

        async def work() -> None:
            nonlocal tries
            tries += 1
            async with database.write() as session:
                await session.execute(text(statement))

        try:
            async with asyncio.timeout(30):
                await persist(work, log)
        finally:
            await database.close()

    with pytest.raises(SQLAlchemyError):
        asyncio.run(scenario())
    assert tries == 1


async def _ask(address: str) -> Any:
    database = Database(address)
    try:
        async with database.read() as session:
            return await session.scalar(text("SELECT 1"))
    finally:
        await database.close()


def test_a_database_that_is_away_is_asked_again(database_url: str) -> None:
    addresses = [AWAY, database_url]
    assert asyncio.run(persist(lambda: _ask(addresses.pop(0)), log)) == 1


def test_a_database_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "DATABASE_OUTAGE", RetryPolicy(0.1, 0.1, max_seconds=0.0))
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        asyncio.run(persist(lambda: _ask(AWAY), log))


def test_an_outage_at_the_start_of_an_attempt_does_not_fail_the_job(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(installation)
    job_id = machine.add_job(toy={"steps": 5})

    async def away(*_: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))

    async def scenario() -> None:
        with monkeypatch.context() as patched, capture_logs() as lines:
            patched.setattr(follower.Follower, "_hub_token", away)
            async with machine.worker():
                await machine.when(
                    job_id,
                    lambda job: (
                        job.status == "failed"
                        or any(line["event"] == "following a job failed" for line in lines)
                    ),
                )
        async with machine.worker():
            ended = await machine.until(job_id, "completed", "failed")
            assert ended.status == "completed", ended.error_message

    asyncio.run(scenario())
    assert machine.job(job_id).attempt == 1


def test_a_worker_whose_statements_are_wrong_ends_instead_of_waiting_for_ever(
    migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MOST_WRONG_STATEMENTS", 2)
    copy = tmp_path / "bloom.db"
    shutil.copy(migrated_sqlite, copy)
    machine = Machine(Installation(tmp_path / "home", f"sqlite+aiosqlite:///{copy}"))
    with machine.installation.session() as session:
        session.execute(text("DROP TABLE workers"))

    async def scenario() -> None:
        database = Database(machine.settings.database)
        provider = LocalProvider(machine.settings.home, warm=False)
        try:
            async with asyncio.timeout(60):
                await loop.WorkerLoop(machine.settings, database, provider).run(asyncio.Event())
        finally:
            await database.close()

    with pytest.raises(OperationalError, match="no such table"):
        asyncio.run(scenario())


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that this test may stop."""
    try:
        with postgres_server() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.long
@pytest.mark.parametrize("tries", [5, pytest.param(25, marks=pytest.mark.long)])
def test_a_database_that_was_away_for_a_while_costs_nothing(
    own_postgres: PostgresServer, tmp_path: Path, tries: int
) -> None:
    address = own_postgres.address(own_postgres.create())
    upgrade(address)
    machine = Machine(Installation(tmp_path / "home", address))
    followed = machine.add_job(toy={"hold_at": 5})
    queued = machine.add_job(toy={"steps": 5})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(followed, 5)
            await asyncio.to_thread(own_postgres.stop)
            machine.let_go(followed)
            while (
                sum(line["event"] == "the database does not answer, trying again" for line in lines) < tries
            ):
                await asyncio.sleep(0.05)
            await asyncio.to_thread(own_postgres.start)
            await machine.until(followed, "completed")
            await machine.until(queued, "completed")

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert machine.job(followed).attempt == 1, "the run never noticed"
    assert machine.losses(followed) == {step: [(1, 1.0 / step)] for step in range(1, 41)}
