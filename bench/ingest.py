"""How fast a worker stores what a run says, and how long it locks for that, on both databases.

    python bench/ingest.py [--steps 40000]

A run of ten curves is written by the Reporter; then a worker's own follower reads it: it parses a piece,
fills its buckets, and stores points, buckets, cursor, summary and event in one transaction. PostgreSQL is
started from the machine's programs, as for the tests, but waits for the disk as in production.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import event, func, select

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.server.postgres import PostgresMissing, postgres_server

from gpubloom.server import app as _every_table  # noqa: F401 - importing it declares all tables
from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.tables import MetricPoint, TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings
from gpubloom.traincard import Reporter
from gpubloom.worker.follower import Follower

CURVES = ("loss", "learning_rate", "grad_norm", "tokens_per_second", *(f"expert_{i}" for i in range(6)))


def write_run(run_dir: Path, steps: int) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step in range(1, steps + 1):
            reporter.metrics({name: 4.0 / (1 + step * 0.001 + at) for at, name in enumerate(CURVES)}, step)
            if step % 1_000 == 0:
                # The queue is bounded: no loop is this fast.
                reporter.flush()


async def add_job(database: Database) -> TrainingJob:
    """A job that is followed."""
    user = User(id=uuid4(), name="Ada", email="ada@example.org", role="member")
    project = Project(id=uuid4(), user_id=user.id, name="P", model_architecture="transformer", model_size=1)
    job = TrainingJob(
        id=uuid4(),
        project_id=project.id,
        user_id=user.id,
        name="J",
        config={},
        plan={},
        cursor={},
        status="running",
        attempt=1,
        lease_token=uuid4(),
    )
    async with database.write() as session:
        for row in (user, project, job):
            session.add(row)
            await session.flush()
    return job


class Transactions:
    """How long each writing transaction took: from its beginning until its connection was free again."""

    def __init__(self, database: Database) -> None:
        self.seconds: list[float] = []
        engine = database._writer.sync_engine
        event.listen(engine, "begin", self._begin)
        event.listen(engine, "checkin", self._end)

    def _begin(self, connection: Any) -> None:
        # A PostgreSQL engine begins readers as well; they hold no lock, and are no slower.
        connection.info["begun"] = time.perf_counter()

    def _end(self, connection: Any, record: Any) -> None:
        if (begun := record.info.pop("begun", None)) is not None:
            self.seconds.append(time.perf_counter() - begun)


async def measure(address: str, home: Path, steps: int) -> tuple[int, float, list[float]]:
    """Points, seconds, and the seconds of each transaction."""
    database = Database(address)
    try:
        settings = Settings(_env_file=None, home=home, database_url=address)
        job = await add_job(database)
        write_run(run_directory(settings, job.id), steps)
        follower = Follower(database, settings, None, job, None, None)  # type: ignore[arg-type]
        transactions = Transactions(database)
        started = time.perf_counter()
        while await follower._read():
            pass
        seconds = time.perf_counter() - started
        async with database.read() as session:
            points = await session.scalar(select(func.count()).select_from(MetricPoint))
        return points or 0, seconds, transactions.seconds
    finally:
        await database.close()


def databases(folder: Path) -> Iterator[tuple[str, str]]:
    yield "SQLite", f"sqlite+aiosqlite:///{folder / 'bloom.db'}"
    try:
        with postgres_server(durable=True) as server:
            yield "PostgreSQL", server.address(server.create())
    except PostgresMissing as missing:
        print(missing)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--steps", type=int, default=40_000)
    steps = options.parse_args().steps
    heads = ("points", "points/s", "transactions", "longest", "median")
    print(f"{'database':12} {heads[0]:>9} {heads[1]:>9} {heads[2]:>13} {heads[3]:>9} {heads[4]:>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, address in databases(Path(folder)):
            upgrade(address)
            points, seconds, held = asyncio.run(measure(address, Path(folder, name), steps))
            held.sort()
            print(
                f"{name:12} {points:9,} {points / seconds:9,.0f} {len(held):13} "
                f"{held[-1] * 1000:6.0f} ms {held[len(held) // 2] * 1000:6.0f} ms"
            )


if __name__ == "__main__":
    main()
