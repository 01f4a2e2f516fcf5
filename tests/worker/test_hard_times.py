"""A database that goes away: the run goes on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gpubloom.server.db.migrate import upgrade
from tests.server.installation import Installation
from tests.server.postgres import PostgresMissing, PostgresServer, postgres_server
from tests.worker.machine import Machine


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that this test may stop."""
    try:
        with postgres_server() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


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
