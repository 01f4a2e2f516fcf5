"""How fast a long run opens and zooms: a recorded run of a million steps and ten curves, served over HTTP.

    python bench/long_run.py [--steps 1000000]

The recording goes into a fresh SQLite database with one statement per curve: the rows are those that a
worker would have written, whose own rate is measured at the end. Then the real application
answers the job page's own requests.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from sqlalchemy import text
from starlette.testclient import TestClient

from gpubloom.server.accounts.registration import issue_setup_link
from gpubloom.server.app import create_app
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import upgrade
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.metrics import WIDTHS
from gpubloom.server.jobs.tables import MetricSeries, TrainingJob
from gpubloom.server.settings import Settings
from gpubloom.traincard import RunEvent

CURVES = ("loss", "learning_rate", "grad_norm", "tokens_per_second", *(f"expert_{i}" for i in range(6)))
PASSWORD = "a walk in the quiet garden"


def sign_up(client: TestClient, link_secret: str) -> None:
    """Create the first account and stay signed in."""
    account = {"name": "Ada", "email": "ada@example.org", "password": PASSWORD, "token": link_secret}
    client.headers["X-CSRF-Token"] = client.post("/api/auth/setup", json=account).json()["csrf_token"]


@contextmanager
def served_app() -> Iterator[tuple[TestClient, Database, Path]]:
    """A client that is signed in to the real application, its database, and the home of both."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(_env_file=None, home=Path(folder))
        upgrade(settings.database)
        with TestClient(create_app(settings), base_url=settings.address) as client:
            database: Database = client.app.state.database  # type: ignore[attr-defined]

            async def link() -> str:
                async with database.write() as session:
                    return str(await issue_setup_link(session, ""))

            assert client.portal is not None
            sign_up(client, client.portal.call(link).partition("token=")[2])
            yield client, database, settings.home


async def record(database: Database, job_id: str, steps: int) -> None:
    """Write the recorded run straight into the tables."""
    async with database.write() as session:
        series = [
            MetricSeries(job_id=UUID(job_id), name=f"train/{name}", rank=0, axis="step") for name in CURVES
        ]
        session.add_all(series)
        await session.flush()
        for row in series:
            await session.execute(
                text(
                    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < :steps) "
                    "INSERT INTO training_metrics (series_id, x, attempt, seq, time, value) "
                    "SELECT :id, x, 1, x, 1.7e9 + x * 0.1, 1.0 + 4.0 / (1 + x * 0.001) "
                    "+ (abs(random()) % 1000) / 2000.0 FROM n"
                ),
                {"id": row.id, "steps": steps},
            )
            for level, width in WIDTHS.items():
                await session.execute(
                    text(
                        "INSERT INTO metric_buckets "
                        "(series_id, level, bucket, attempt, low, high, total, count) "
                        "SELECT series_id, :level, x / :width, 1, "
                        "min(value), max(value), sum(value), count(*) "
                        "FROM training_metrics WHERE series_id = :id GROUP BY x / :width"
                    ),
                    {"id": row.id, "level": level, "width": width},
                )


async def ingest_rate(database: Database, job: TrainingJob, steps: int) -> float:
    """Points per second when events are stored as a worker stores them."""
    started = time.perf_counter()
    for first in range(1, steps, 1000):
        events = [
            RunEvent(
                1,
                0,
                step,
                1.7e9 + step,
                "metric",
                step,
                {"values": dict.fromkeys(CURVES, 1.0 / step), "kind": "metric"},
            )
            for step in range(first, first + 1000)
        ]
        async with database.write() as session:
            await store_points(session, job, Batch(events))
    return steps * len(CURVES) / (time.perf_counter() - started)


def timed(client: TestClient, address: str) -> tuple[float, int]:
    """Median seconds of five answers, and their size."""
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        answer = client.get(address)
        seconds.append(time.perf_counter() - started)
        assert answer.status_code == 200, answer.text
    return statistics.median(seconds), len(answer.content)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--steps", type=int, default=1_000_000)
    steps = options.parse_args().steps
    with served_app() as (client, database, home):
        assert client.portal is not None
        project = {"name": "Long", "model_architecture": "transformer", "model_size": 1}
        jobs = [client.post("/api/jobs", json={"project": project}).json() for _ in range(2)]

        started = time.perf_counter()
        client.portal.call(record, database, jobs[0]["id"], steps)
        size = home.joinpath("bloom.db").stat().st_size
        print(f"recorded {steps:,} steps x {len(CURVES)} curves in {time.perf_counter() - started:.0f} s")
        print(f"database: {size / 1e6:,.0f} MB, {size / steps / len(CURVES):.0f} bytes a point")

        base = f"/api/jobs/{jobs[0]['id']}/metrics?points=1000"
        middle = steps // 2
        print(f"\n{'request':42} {'median':>9} {'size':>9}")
        for label, address in (
            ("open the job: all curves, whole run", base),
            ("zoom to a tenth", f"{base}&from={middle}&to={middle + steps // 10}"),
            ("zoom to 10,000 steps", f"{base}&from={middle}&to={middle + 10_000}"),
            ("zoom to 500 steps", f"{base}&from={middle}&to={middle + 500}"),
        ):
            seconds, length = timed(client, address)
            print(f"{label:42} {seconds * 1000:6.0f} ms {length / 1000:6.0f} KB")

        async def rate() -> float:
            async with database.read() as session:
                job = await session.get(TrainingJob, UUID(jobs[1]["id"]))
            assert job is not None
            return await ingest_rate(database, job, 20_000)

        print(f"\nstored as a worker stores them: {client.portal.call(rate):,.0f} points a second")


if __name__ == "__main__":
    main()
