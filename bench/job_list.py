"""What a page of the job list costs the server: 50 of 50,000 jobs, and the totals of the dashboard.

    python bench/job_list.py [--jobs 50000]

Jobs of five hundred projects, each with a config, a plan and a summary as a run leaves them, in a fresh
SQLite database. Processor time of the whole process, the database included, per answer of the real
application.
"""

import argparse
import statistics
import time
from datetime import timedelta
from uuid import uuid4

from long_run import served_app
from sqlalchemy import insert, select
from starlette.testclient import TestClient

from gpubloom.plan import TrainConfig, detect_hardware, plan
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project

PROJECTS = 500
# Of a hundred jobs: a few are under way.
STATUSES = ("queued", "running", *("completed",) * 90, *("failed",) * 8)


async def fill(database: Database, count: int) -> None:
    """Write the jobs straight into the table."""
    config = TrainConfig.model_validate({"data": {"train_path": "/data"}, "device": "cpu"})
    planned = plan(config, detect_hardware(), tokens_per_epoch=1_000).model_dump(mode="json")
    summary = {
        "phase": "train",
        "step": 900,
        "total_steps": 1_000,
        "epoch": 0.9,
        "epochs": 1.0,
        "eta_seconds": 12.5,
        "values": {f"train/{name}": {"step": 900, "value": 1.5} for name in ("loss", *map(str, range(30)))},
        "system": {f"gpu/{index}/utilization": 95.0 for index in range(8)},
        "facts": {f"fact_{index}": "a sentence about the run" for index in range(40)},
        "marks": [{"kind": "resumed", "attempt": 2, "step": step} for step in range(50)],
    }
    async with database.write() as session:
        user = (await session.scalars(select(User))).one()
        projects = [
            Project(id=uuid4(), user_id=user.id, name=f"P{n}", model_architecture="transformer", model_size=1)
            for n in range(PROJECTS)
        ]
        session.add_all(projects)
        await session.flush()
        for first in range(0, count, 1_000):
            rows = [
                {
                    "id": uuid4(),
                    "project_id": projects[number % PROJECTS].id,
                    "user_id": user.id,
                    "name": f"job {number}",
                    "status": STATUSES[number % len(STATUSES)],
                    "config": config.model_dump(mode="json"),
                    "plan": planned,
                    "summary": summary,
                    "start_time": now(),
                    "created_at": now() - timedelta(seconds=count - number),
                }
                for number in range(first, min(first + 1_000, count))
            ]
            await session.execute(insert(TrainingJob), rows)


def cost(client: TestClient, address: str) -> tuple[float, float, int]:
    """Median processor time and time of twenty answers in seconds, and their size."""
    processor, seconds = [], []
    for _ in range(20):
        cpu, started = time.process_time(), time.perf_counter()
        answer = client.get(address)
        processor.append(time.process_time() - cpu)
        seconds.append(time.perf_counter() - started)
        assert answer.status_code == 200, answer.text
    return statistics.median(processor), statistics.median(seconds), len(answer.content)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--jobs", type=int, default=50_000)
    count = options.parse_args().jobs
    with served_app() as (client, database, _):
        assert client.portal is not None
        client.portal.call(fill, database, count)
        print(f"{count:,} jobs\n\n{'request':34} {'processor':>10} {'time':>9} {'size':>9}")
        for label, address in (
            ("the newest 50", "/api/jobs?limit=50"),
            ("50 from the middle", f"/api/jobs?limit=50&offset={count // 2}"),
            ("the running ones", "/api/jobs?limit=50&status=running"),
            ("50 with a word in their names", "/api/jobs?limit=50&search=job%2077"),
            ("totals", "/api/jobs/totals"),
            ("nothing but a session: /api/me", "/api/me"),
        ):
            processor, seconds, size = cost(client, address)
            print(f"{label:34} {processor * 1e3:7.1f} ms {seconds * 1e3:6.1f} ms {size / 1e3:6.1f} KB")


if __name__ == "__main__":
    main()
