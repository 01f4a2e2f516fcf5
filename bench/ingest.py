"""How fast a worker stores what a run says, and how long it locks for that, on both databases.

    python bench/ingest.py [--steps 40000]

A run of ten curves is written by the Reporter; then the steps of a follower are timed: read and parse a
batch, fold its buckets, and store points, buckets, cursor, summary and event in one transaction. PostgreSQL
is started from the machine's programs, as for the tests, but waits for the disk as in production.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import event

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.server.postgres import PostgresMissing, postgres_server

from gpubloom.server import app as _every_table  # noqa: F401 - importing it declares all tables
from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.ingest import Batch, store_checkpoints, store_points
from gpubloom.server.jobs.summary import add_marks, add_warnings, read_summary, summarize
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.traincard import Reader, Reporter, load_latest
from gpubloom.worker.follower import BATCH_BYTES

CURVES = ("loss", "learning_rate", "grad_norm", "tokens_per_second", *(f"expert_{i}" for i in range(6)))


def write_run(run_dir: Path, steps: int) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step in range(1, steps + 1):
            reporter.metrics({name: 4.0 / (1 + step * 0.001 + at) for at, name in enumerate(CURVES)}, step)
            if step % 1_000 == 0:
                # The queue is bounded: no loop is this fast.
                reporter.flush()


async def add_job(database: Database) -> UUID:
    user = User(id=uuid4(), name="Ada", email="ada@example.org", role="member")
    project = Project(id=uuid4(), user_id=user.id, name="P", model_architecture="transformer", model_size=1)
    job = TrainingJob(id=uuid4(), project_id=project.id, user_id=user.id, name="J", config={}, plan={})
    async with database.write() as session:
        for row in (user, project, job):
            session.add(row)
            await session.flush()
    return job.id


class Transactions:
    """How long each writing transaction took, from its beginning to its end."""

    def __init__(self, database: Database) -> None:
        self.seconds: list[float] = []
        engine = database._writer.sync_engine
        event.listen(engine, "begin", self._begin)
        event.listen(engine, "commit", self._end)

    def _begin(self, connection: Any) -> None:
        connection.info["begun"] = time.perf_counter()

    def _end(self, connection: Any) -> None:
        # The commit itself comes after this event: it is added by `ended`.
        self._begun = connection.info["begun"]

    def ended(self) -> None:
        self.seconds.append(time.perf_counter() - self._begun)


async def measure(address: str, run_dir: Path) -> tuple[int, float, list[float]]:
    """Points, seconds, and the seconds of each transaction."""
    database = Database(address)
    try:
        job_id = await add_job(database)
        transactions = Transactions(database)
        reader = Reader(run_dir)
        points = 0
        started = time.perf_counter()
        while True:
            events = await asyncio.to_thread(reader.read_new, BATCH_BYTES)
            if not events:
                break
            batch = await asyncio.to_thread(Batch, events)
            latest = await asyncio.to_thread(load_latest, run_dir)
            async with database.write() as session:
                row = await lock_job(session, job_id)
                assert row is not None
                ranges = await store_points(session, row, batch)
                changed = await store_checkpoints(session, row, events)
                row.cursor = reader.cursor
                summary = summarize(read_summary(row.summary), latest, reader.damaged_lines)
                add_marks(summary, events, row.settings)
                add_warnings(summary, events)
                row.summary = summary.dump()
                await announce(session, row, points=ranges, checkpoints=changed)
            transactions.ended()
            points += sum(each.count for each in ranges)
        return points, time.perf_counter() - started, transactions.seconds
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
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        write_run(run_dir, steps)
        print(
            f"{'database':12} {'points':>9} {'points/s':>9} {'transactions':>13} {'longest':>9} {'median':>9}"
        )
        for name, address in databases(Path(folder)):
            upgrade(address)
            points, seconds, held = asyncio.run(measure(address, run_dir))
            held.sort()
            print(
                f"{name:12} {points:9,} {points / seconds:9,.0f} {len(held):13} "
                f"{held[-1] * 1000:6.0f} ms {held[len(held) // 2] * 1000:6.0f} ms"
            )


if __name__ == "__main__":
    main()
