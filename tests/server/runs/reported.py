"""Points of a run as the worker stores them."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard import RunEvent
from tests.server.installation import Installation
from tests.server.jobs.recorded import START


def report(installation: Installation, job: TrainingJob, series: str, values: Sequence[float]) -> None:
    """One value for each step, from step 1."""
    events = [
        RunEvent(1, 0, step, START, "metric", step, {"values": {series: value}})
        for step, value in enumerate(values, start=1)
    ]

    async def store() -> None:
        database = Database(installation.database_url)
        async with database.write() as session:
            await store_points(session, await session.get_one(TrainingJob, job.id), Batch(events))
        await database.close()

    # In a thread: a test with a browser has an event loop already.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(store())).result()
