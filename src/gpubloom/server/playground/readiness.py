"""How far a playground is: waiting for a device, loading, ready, on its way out."""

import asyncio
import time
from uuid import UUID

import anyio.to_thread

from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground.endpoint import Endpoint, read_endpoint
from gpubloom.server.playground.proxy import NotReady
from gpubloom.server.playground.schemas import State
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.settings import Settings

_LOOK_SECONDS = 0.25


def state_of(job: TrainingJob, endpoint: Endpoint | None) -> State:
    """What a person should know."""
    if job.status in ENDED:
        return "ended"
    if job.status == "cancelling":
        return "stopping"
    if job.status == "queued":
        return "waiting"
    # A file from before belongs to a process that is gone.
    return "ready" if endpoint is not None and job.status == "running" else "loading"


async def ready_endpoint(
    database: Database, settings: Settings, job_id: UUID, *, wait_seconds: float = 0.0
) -> Endpoint:
    """Where to ask, now or within some seconds; else a sentence that says what stands in the way."""
    deadline = time.monotonic() + wait_seconds
    run_dir = run_directory(settings, job_id)
    while True:
        async with database.read() as session:
            job = await session.get(TrainingJob, job_id)
        if job is None:
            raise NotFound("There is no such playground.")
        endpoint = await anyio.to_thread.run_sync(read_endpoint, run_dir)
        state = state_of(job, endpoint)
        if state == "ready" and endpoint is not None:
            return endpoint
        if state in {"ended", "stopping"}:
            raise Conflict(_gone(job), code="not_running")
        if time.monotonic() >= deadline:
            raise NotReady(
                "The model waits for a device. Try again in a while."
                if state == "waiting"
                else "The model is being loaded. Try again in a few seconds."
            )
        await asyncio.sleep(_LOOK_SECONDS)


def _gone(job: TrainingJob) -> str:
    if job.status == "failed":
        return f"The model could not be loaded. {job.error_message or ''}".strip()
    why = f" {job.error_message}" if job.error_message else ""
    return f"The model is not loaded any more.{why} Open the playground again."
