"""What the run list costs the server: a page of 1,000 runs of 100,000 steps, and 50 of them in one chart.

    python bench/run_list.py [--runs 1000] [--steps 100000]

Every run has a config, the summaries of twenty metrics and the buckets of one curve. A chart of a long curve
reads no points and none of the narrowest buckets, so those are left out here. Time of an answer of the real
application over HTTP in one process, median of ten.
"""

import argparse
import math
import random
import statistics
import time
from datetime import timedelta
from uuid import UUID, uuid4

from long_run import served_app
from sqlalchemy import insert, select
from starlette.testclient import TestClient

from gpubloom.plan import TrainConfig
from gpubloom.runs.stats import MetricStats
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.ingest import LEVELS, WIDTHS
from gpubloom.server.jobs.run_fields import run_fields
from gpubloom.server.jobs.tables import MetricBucket, MetricSeries, TrainingJob
from gpubloom.server.projects.tables import Project

CURVE = "train/loss"
FILTER = "lr+%3E+1e-5+and+status+%3D+failed"
SERIES = (CURVE, "eval/loss", *(f"train/part_{number}" for number in range(18)))


def _stats(last: float, steps: int) -> list[object]:
    return MetricStats(last, steps, last - 0.1, steps, last + 2, 1, last * steps, steps).as_list()


async def fill(database: Database, runs: int, steps: int) -> list[UUID]:
    """Write the runs straight into the tables."""
    generator = random.Random(0)
    ids = [uuid4() for _ in range(runs)]
    async with database.write() as session:
        user = (await session.scalars(select(User))).one()
        projects = [Project(id=uuid4(), user_id=user.id, name=f"Project {n}") for n in range(5)]
        session.add_all(projects)
        await session.flush()
        rows = []
        for number, run_id in enumerate(ids):
            config = TrainConfig.model_validate(
                {
                    "data": {"train_path": "/data"},
                    "device": "cpu",
                    "seed": number % 3,
                    "learning_rate": 10 ** generator.uniform(-5, -3) if number % 3 == 0 else 1e-4,
                }
            ).model_dump(mode="json")
            last = generator.uniform(1, 2)
            summary = {"step": steps, "total_steps": steps, "facts": {f"fact_{n}": "text" for n in range(20)}}
            rows.append(
                {
                    "id": run_id,
                    "project_id": projects[number % 5].id,
                    "user_id": user.id,
                    "name": f"run {number}",
                    "status": "failed" if number % 20 == 0 else "completed",
                    "config": config,
                    "plan": {},
                    "summary": summary,
                    "run_fields": run_fields("train", config, summary),
                    "run_metrics": {name: _stats(last, steps) for name in SERIES},
                    "start_time": now(),
                    "end_time": now(),
                    "created_at": now() - timedelta(minutes=number),
                }
            )
        await session.execute(insert(TrainingJob), rows)
        for run_id in ids:
            added = insert(MetricSeries).values(job_id=run_id, name=CURVE, rank=0, axis="step")
            series = (await session.execute(added.returning(MetricSeries.id))).scalar_one()
            await session.execute(insert(MetricBucket), _buckets(series, steps))
    return ids


def _buckets(series: int, steps: int) -> list[dict[str, object]]:
    found = []
    for level in LEVELS[1:]:
        width = WIDTHS[level]
        for bucket in range(-(-steps // width)):
            value = 1 + math.exp(-bucket * width / steps)
            found.append(
                {
                    "series_id": series,
                    "level": level,
                    "bucket": bucket,
                    "attempt": 1,
                    "low": value - 0.1,
                    "high": value + 0.1,
                    "total": value * width,
                    "count": width,
                }
            )
    return found


def cost(client: TestClient, address: str) -> tuple[float, float, int]:
    """Median time and processor time of ten answers in seconds, and their size."""
    seconds, processor = [], []
    for _ in range(10):
        cpu, started = time.process_time(), time.perf_counter()
        answer = client.get(address)
        seconds.append(time.perf_counter() - started)
        processor.append(time.process_time() - cpu)
        assert answer.status_code == 200, answer.text
    return statistics.median(seconds), statistics.median(processor), len(answer.content)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=int, default=1_000)
    options.add_argument("--steps", type=int, default=100_000)
    chosen = options.parse_args()
    with served_app() as (client, database, _):
        assert client.portal is not None
        ids = client.portal.call(fill, database, chosen.runs, chosen.steps)
        drawn = [str(run_id) for run_id in ids[:50]]
        seeds = [",".join(drawn[start : start + 5]) for start in range(0, 50, 5)]
        alone, grouped = "&group=".join(drawn), "&group=".join(seeds)
        print(f"{chosen.runs:,} runs of {chosen.steps:,} steps\n")
        print(f"{'request':44} {'time':>9} {'processor':>10} {'size':>10}")
        for label, address in (
            ("list, 100 rows, seeds together", "/api/runs?limit=100"),
            ("filter, sort by a metric", f"/api/runs?limit=100&query={FILTER}&sort=eval/loss.min"),
            ("grouped by project, 1,000 rows", "/api/runs?limit=1000&group=project"),
            ("50 runs in one chart", f"/api/runs/overlay?series=train/loss&group={alone}"),
            ("50 runs in 10 groups of 5 seeds", f"/api/runs/overlay?series=train/loss&group={grouped}"),
            ("configs of 50 runs compared", "/api/runs/compare?run=" + "&run=".join(drawn)),
        ):
            seconds, processor, size = cost(client, address)
            print(f"{label:44} {seconds * 1e3:6.0f} ms {processor * 1e3:7.0f} ms {size / 1e3:7.1f} KB")


if __name__ == "__main__":
    main()
