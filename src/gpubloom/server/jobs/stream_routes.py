"""The HTTP routes that follow a job: its changes as server-sent events (SSE), and its output."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, cast
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Query, Request

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, still_valid
from gpubloom.server.accounts.shares import HOLDS_RUN, HOLDS_STREAM
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.jobs import service
from gpubloom.server.jobs.events import JobUpdate
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.run_watch import RunReadings, log_matches, log_page
from gpubloom.server.jobs.schemas import LogMatches, LogPage
from gpubloom.server.jobs.stream_frames import TICK, EventStream
from gpubloom.server.jobs.streams import JobStreams
from gpubloom.server.schema import Storable

router = APIRouter(tags=["jobs"])


async def _own_job_id(job_id: UUID, principal: CurrentPrincipal, database: CurrentDatabase) -> UUID:
    # A session of its own that ends here: a stream must not hold one for hours.
    async with database.read() as session:
        await service.get_job(session, principal, job_id)
    return job_id


OwnJobId = Annotated[UUID, Depends(_own_job_id)]


@router.get(
    "/jobs/{job_id}/stream",
    response_class=EventStream,
    dependencies=[HOLDS_STREAM],
    responses={
        200: {"model": JobUpdate, "description": "Server-sent events: `delta`, or `reset` without data."}
    },
)
async def stream_job(
    request: Request,
    job_id: OwnJobId,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> EventStream:
    """Follow the changes of a job. `after`, or Last-Event-ID on reconnecting, is the position to continue
    from.

    The data of each `delta` event is a JobUpdate, and its id is the position of the job. After a `reset`
    event, load the job and its curves again.
    """
    streams = cast("JobStreams", request.app.state.streams)
    position = last_event_id if last_event_id is not None else after

    async def frames() -> AsyncIterator[bytes]:
        async with aclosing(streams.follow(job_id, position)) as events:
            async for event in events:
                # Signed out, disabled or revoked since: the stream ends too.
                if event is TICK and not await still_valid(database, principal):
                    return
                yield event.frame

    # No proxy may keep events back.
    return EventStream(frames(), headers={"X-Accel-Buffering": "no"})


@router.get("/jobs/{job_id}/logs")
async def read_logs(
    request: Request,
    job_id: OwnJobId,
    settings: CurrentSettings,
    after: Annotated[int | None, Query(ge=0, le=2**53, description="Byte position to continue from.")] = None,
    limit: Annotated[int, Query(ge=1, le=2_000)] = 500,
) -> LogPage:
    """Return the end of a job's output, or the output after a position."""
    readings = cast("RunReadings", request.app.state.run_readings)
    run_dir = run_directory(settings, job_id)
    return await anyio.to_thread.run_sync(lambda: log_page(readings, run_dir, after=after, limit=limit))


@router.get("/jobs/{job_id}/logs/search", dependencies=[HOLDS_RUN])
async def search_logs(
    job_id: OwnJobId,
    settings: CurrentSettings,
    text: Annotated[str, Query(min_length=1, max_length=200), Storable],
    limit: Annotated[int, Query(ge=1, le=2_000)] = 500,
) -> LogMatches:
    """Search the output of a job. Return the newest lines that contain `text`."""
    run_dir = run_directory(settings, job_id)
    return await anyio.to_thread.run_sync(lambda: log_matches(run_dir, text, limit=limit))
