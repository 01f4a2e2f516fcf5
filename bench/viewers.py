"""Many people watch one job: how late they hear of a point, and what fifty of them cost the training.

    python bench/viewers.py [--viewers 500] [--events 5] [--seconds 20]
    python bench/viewers.py --training

The first: `bloom up` serves streams of one job, into which this program writes points as a worker does, so
many events a second. A delay is the time from before the transaction of a point until a viewer has parsed the
event; all viewers share this one process, whose own work is in the figure. The second: the same training runs
with nobody watching and with fifty open streams, in turns; the figure is the ratio of the median times of a
step.
"""

import argparse
import asyncio
import json
import resource
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from live_app import LiveApp, start_app
from sqlalchemy import select

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.traincard import RunEvent

CURVES = ("loss", "learning_rate", "grad_norm", "tokens_per_second", *(f"expert_{i}" for i in range(6)))
STEPS = 300
ROUNDS = 3
ENDED = {"completed", "failed", "cancelled"}


class Viewers:
    """Open streams of one job; notes how old each newest loss is when it arrives."""

    def __init__(self, app: LiveApp, job_id: str) -> None:
        self._server = urlsplit(str(app.client.base_url))
        cookies = "; ".join(f"{name}={value}" for name, value in app.client.cookies.items())
        self._request = (
            f"GET /api/jobs/{job_id}/stream?after=0 HTTP/1.1\r\nHost: {self._server.netloc}\r\n"
            f"Cookie: {cookies}\r\nAccept: text/event-stream\r\n\r\n"
        ).encode()
        self.delays: list[float] = []
        self.joined = 0

    async def watch(self) -> None:
        """One stream, until it or the job ends."""
        reader, writer = await asyncio.open_connection(
            self._server.hostname, self._server.port, limit=1 << 22
        )
        writer.write(self._request)
        try:
            status = await reader.readline()
            assert b" 200 " in status, status
            first = True
            while line := await reader.readline():
                if not line.startswith(b"data:"):
                    continue
                data = json.loads(line[5:])
                arrived = time.time()
                if first:
                    # What happened before it joined is not late.
                    first = False
                    self.joined += 1
                else:
                    found = [
                        each["time"][-1] for each in data.get("series", []) if each["name"] == "train/loss"
                    ]
                    self.delays += [arrived - moment for moment in found]
                if (data.get("job") or {}).get("status") in ENDED:
                    return
        finally:
            writer.close()


async def add_job(database: Database) -> UUID:
    """A job that runs elsewhere, as far as the app knows."""
    async with database.write() as session:
        user = (await session.scalars(select(User))).one()
        project = Project(
            id=uuid4(), user_id=user.id, name="P", model_architecture="transformer", model_size=1
        )
        session.add(project)
        await session.flush()
        job = TrainingJob(
            id=uuid4(),
            project_id=project.id,
            user_id=user.id,
            name="watched",
            config={},
            plan={},
            status="running",
            attempt=1,
            machine="elsewhere",
            lease_token=uuid4(),
            lease_expires=now() + timedelta(hours=1),
        )
        session.add(job)
    return job.id


async def tell(database: Database, job_id: UUID, step: int) -> None:
    """One step of ten curves, in a transaction as a worker's."""
    moment = time.time()
    fields = {"kind": "metric", "values": dict.fromkeys(CURVES, 1.0 / step)}
    async with database.write() as session:
        row = await lock_job(session, job_id)
        assert row is not None
        points = await store_points(
            session, row, Batch([RunEvent(1, 0, step, moment, "metric", step, fields)])
        )
        values = {f"train/{name}": {"step": step, "value": 1.0 / step} for name in CURVES}
        row.summary = {"step": step, "total_steps": 10**6, "phase": "training", "values": values}
        await announce(session, row, points=points)


async def measure_delay(app: LiveApp, count: int, rate: float, seconds: float) -> None:
    database = Database(f"sqlite+aiosqlite:///{app.home / 'bloom.db'}")
    job_id = await add_job(database)
    viewers = Viewers(app, str(job_id))
    watching = [asyncio.create_task(viewers.watch()) for _ in range(count)]
    while viewers.joined < count:
        assert not any(task.done() for task in watching), "a stream ended"
        await asyncio.sleep(0.05)
    began = time.monotonic()
    for step in range(1, round(rate * seconds) + 1):
        await asyncio.sleep(max(0.0, began + step / rate - time.monotonic()))
        await tell(database, job_id, step)
    await asyncio.sleep(2)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    await database.close()
    delays = sorted(viewers.delays)
    expected = round(rate * seconds) * count
    print(f"{count} viewers, {rate:g} events/s of ten points for {seconds:g} s")
    print(f"deltas seen: {len(delays):,}; events of a poll are merged, {expected:,} would be one for each")
    print(
        f"delay: median {statistics.median(delays):.2f} s, p95 {delays[int(len(delays) * 0.95)]:.2f} s, "
        f"p99 {delays[int(len(delays) * 0.99)]:.2f} s, longest {delays[-1]:.2f} s"
    )


def step_seconds(app: LiveApp, count: int) -> float:
    """Train once; median seconds of a step."""
    job_id = app.start_job(batch_size=4, max_steps=STEPS, epochs=100)

    async def watch() -> None:
        viewers = Viewers(app, job_id)
        await asyncio.gather(*(viewers.watch() for _ in range(count)))

    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(asyncio.run, watch())
        app.wait(job_id, "completed")
        watching.result(60)
    rows = app.client.get(f"/api/training-jobs/{job_id}/metrics").json()["items"]
    # The first steps warm up; tokens per step are the same in both runs.
    rates = [row["throughput"] for row in rows[50:]]
    return 4 * 128 / statistics.median(rates)


def measure_training(app: LiveApp, count: int) -> None:
    step_seconds(app, 0)
    pairs = [(step_seconds(app, 0), step_seconds(app, count)) for _ in range(ROUNDS)]
    alone, watched = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"one step: {alone * 1000:.2f} ms alone, {watched * 1000:.2f} ms with {count} viewers")
    print(f"cost of {count} viewers: {(watched / alone - 1) * 100:+.1f} %")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--viewers", type=int)
    options.add_argument("--events", type=float, default=5.0, help="a second")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--training", action="store_true")
    given = options.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with start_app() as app:
        if given.training:
            measure_training(app, given.viewers or 50)
        else:
            asyncio.run(measure_delay(app, given.viewers or 500, given.events, given.seconds))


if __name__ == "__main__":
    main()
