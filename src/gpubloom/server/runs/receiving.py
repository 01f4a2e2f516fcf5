"""Receive runs that Reporters on other machines send, while they happen (`traincard.sender`).

The sender knows the id of its run and a token with the scope write; everything else is decided here: which
paths are accepted, how large a run may be, whose project it belongs to. What arrived lies in a run directory
like that of a job, so every page and every command reads it the same way.
"""

import asyncio
import json
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import UUID

import anyio.to_thread
import structlog
from fastapi import APIRouter, Request
from fastapi.params import Body
from sqlalchemy import func, select
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, Principal
from gpubloom.server.accounts.shares import HOLDS_RUN
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database, WriteSession, database_of
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.recording import (
    UnreadableRun,
    parse_run,
    read_latest,
    read_piece,
    store_piece,
)
from gpubloom.server.jobs.reported_state import reported_state
from gpubloom.server.jobs.run_watch import RunLook, RunReadings
from gpubloom.server.jobs.service import record_change
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.problems import Conflict, InvalidInput, NotFound, TooManyRequests
from gpubloom.server.projects.schemas import ProjectIn
from gpubloom.server.projects.service import create_project, visible_to
from gpubloom.server.projects.tables import Project
from gpubloom.server.runs.schemas import SentRun, SentRunIn
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import (
    GIGABYTE,
    SPARE_BYTES,
    NoRoom,
    count_files,
    free_bytes,
    quota_exceeded,
    read_usage,
    room_for,
)
from gpubloom.traincard import Reader
from gpubloom.traincard.safe_paths import walk_beneath
from gpubloom.traincard.sync.accepted import SENT_RUN_PATHS, Limits, RefusedEntryError
from gpubloom.traincard.sync.receive import EarlyBatchError, expected_number, receive
from gpubloom.traincard.sync.upload_batch import UploadBatch

Result = TypeVar("Result")

router = APIRouter(tags=["runs"])
log = structlog.get_logger("bloom")

LARGEST_BATCH = 8 << 20
BODIES = {"/api/sent-runs/batches": LARGEST_BATCH}
# Reports of the longest runs: a hundred million points have some gigabytes.
_RUN_BYTES = 10 * 10**9
# In an hour: each is a row, which no quota counts.
_MOST_NEW_RUNS = 3_000
_LIMITS = Limits(entries=5_000, batch_bytes=LARGEST_BATCH, run_files=20_000)
_WATCH_SECONDS = 20.0
# Those that changed last: a run whose machine was lost stays running for ever.
_MOST_WATCHED = 50


@router.put("/sent-runs")
async def announce_run(
    body: SentRunIn, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> SentRun:
    """Announce a run that is sent from another machine. Repeating it returns the same run."""
    job = await session.get(TrainingJob, body.id, with_for_update=True)
    if job is None:
        job = await _create(session, principal, body, settings)
    elif job.user_id != principal.id or job.kind != "run":
        raise NotFound("This run does not exist.")
    else:
        job.worker = body.host or job.worker
        if body.config is not None and job.config.get("config") != body.config:
            before = _config_bytes(job.config)
            changed = {**job.config, "config": body.config}
            await _require_room(session, principal.id, settings, _config_bytes(changed) - before)
            job.config = changed
            size = await anyio.to_thread.run_sync(_size_of, run_directory(settings, job.id))
            await _measure(session, job, size)
        await session.flush()
    expected = await anyio.to_thread.run_sync(expected_number, run_directory(settings, job.id))
    return SentRun(id=job.id, project_id=job.project_id, next=expected)


async def _create(
    session: AsyncSession, principal: Principal, body: SentRunIn, settings: Settings
) -> TrainingJob:
    config = {} if body.config is None else {"config": body.config}
    await _require_room(session, principal.id, settings, _config_bytes(config))
    moment = now()
    recent = TrainingJob.created_at > moment - timedelta(hours=1)
    own = (TrainingJob.user_id == principal.id, TrainingJob.kind == "run")
    if (await session.scalar(select(func.count()).where(*own, recent)) or 0) >= _MOST_NEW_RUNS:
        raise TooManyRequests(
            f"You announced {_MOST_NEW_RUNS:,} runs in the last hour, which is the limit. Try again later.",
            code="too_many_new_runs",
            retry_after=600,
        )
    found = visible_to(principal).where(Project.name == body.project).order_by(Project.created_at).limit(1)
    project = await session.scalar(found)
    if project is None:
        project = await create_project(session, principal, ProjectIn(name=body.project), settings)
    job = TrainingJob(
        id=body.id,
        project_id=project.id,
        user_id=principal.id,
        name=body.name,
        kind="run",
        status="running",
        config=config,
        target="sent",
        worker=body.host or None,
        position=0,
        start_time=moment,
    )
    session.add(job)
    try:
        await session.flush()
    except IntegrityError as problem:
        raise Conflict("This run is being announced right now. Try again.", code="run_exists") from problem
    await _measure(session, job, 0)
    await record_change(session, principal, job, "training_job.created")
    return job


async def _require_room(session: AsyncSession, user_id: UUID, settings: Settings, more: int) -> None:
    used = (await read_usage(session, user_id)).total
    if used + max(1, more) > settings.user_quota_gb * GIGABYTE:
        raise quota_exceeded(used, settings, "a run needs room for its config and its reports")


def _config_bytes(config: dict[str, Any]) -> int:
    """What a config takes in the database."""
    return len(json.dumps(config))


@router.post("/sent-runs/batches", dependencies=[HOLDS_RUN])
async def receive_batch(
    principal: CurrentPrincipal,
    settings: CurrentSettings,
    request: Request,
    body: Annotated[bytes, Body(media_type="application/octet-stream")],
) -> SentRun:
    """Take in one batch of a run. A batch that came before changes nothing."""
    try:
        # In a thread: hashing and parsing megabytes holds up everybody else's requests.
        batch = await anyio.to_thread.run_sync(UploadBatch.from_bytes, body)
        run_id = UUID(batch.job_id)
    except ValueError as problem:
        raise InvalidInput.for_field(
            "body", f"This is not a batch: {problem}.", code="damaged_batch"
        ) from None
    database = database_of(request)
    async with database.read() as session:
        job = await session.scalar(
            select(TrainingJob).where(
                TrainingJob.id == run_id, TrainingJob.user_id == principal.id, TrainingJob.kind == "run"
            )
        )
        if job is None:
            raise NotFound("This run does not exist.")
        room = await room_for(session, settings, principal.id, run_id)
    free = await anyio.to_thread.run_sync(free_bytes, settings.home)
    if len(body) > free - SPARE_BYTES:
        raise NoRoom("The disk of the server is full. Free some space.", code="disk_full")
    run_dir = run_directory(settings, run_id)
    limits = Limits(
        entries=_LIMITS.entries,
        batch_bytes=_LIMITS.batch_bytes,
        run_files=_LIMITS.run_files,
        run_bytes=min(_RUN_BYTES, max(0, room - _config_bytes(job.config))),
    )
    try:
        received = await anyio.to_thread.run_sync(receive, run_dir, batch, SENT_RUN_PATHS, limits)
    except EarlyBatchError as early:
        raise Conflict(
            f"Batch {early.expected} is expected, not {batch.number}. Announce the run again.",
            code="batch_gap",
        ) from None
    except RefusedEntryError as problem:
        raise InvalidInput.for_field(
            "body", f"The batch is refused: {problem}.", code="batch_refused"
        ) from None
    await record_run(database, settings, run_id, request.app.state.run_readings)
    return SentRun(id=run_id, project_id=job.project_id, next=received.next)


async def record_run(database: Database, settings: Settings, run_id: UUID, readings: RunReadings) -> None:
    """Store what is new in the run directory. Two requests at the same time store nothing twice."""
    run_dir = run_directory(settings, run_id)
    async with database.read() as session:
        row = await session.get(TrainingJob, run_id)
    if row is None:
        return
    size = await anyio.to_thread.run_sync(_size_of, run_dir)
    reader = Reader(run_dir, cursor=row.cursor)
    try:
        while (piece := await _in_thread(lambda: read_piece(reader, run_dir))) is not None:
            async with database.write() as session:
                locked = await lock_job(session, run_id)
                if locked is None or locked.cursor != piece.before:
                    return
                await store_piece(session, locked, piece)
    except UnreadableRun as problem:
        await _fail(database, run_id, f"The files of the run cannot be read: {problem}.", size)
        return
    except (DataError, ValueError, TypeError, OverflowError, RecursionError) as problem:
        # A name or a number that no database holds.
        sentence = f"The files of the run cannot be stored ({type(problem).__name__})."
        await _fail(database, run_id, sentence, size)
        return
    latest = await anyio.to_thread.run_sync(read_latest, run_dir)
    ended = reported_state(latest or {}).status != "running"
    looked = await _look(readings, run_dir, ended=ended)
    async with database.write() as session:
        locked = await lock_job(session, run_id)
        if locked is not None:
            _take_over(locked, latest or {})
            _note(locked, looked)
            await announce(session, locked)
            await _measure(session, locked, size)


async def _in_thread(work: Callable[[], Result]) -> Result:
    return await anyio.to_thread.run_sync(lambda: parse_run(work))


async def _look(readings: RunReadings, run_dir: Path, *, ended: bool) -> RunLook | None:
    """What diagnosis says; None where the run cannot be read, which another sentence says."""
    try:
        return await _in_thread(lambda: readings.look(run_dir, ended=ended))
    except (OSError, UnreadableRun):
        return None


def _note(job: TrainingJob, looked: RunLook | None) -> bool:
    """Store findings and ranks with the run; says whether they changed."""
    if looked is None:
        return False
    # By the clock of the run: batches may come later than what they tell of.
    job.active_seconds, job.active_since = looked.active_seconds, looked.active_since
    summary = read_summary(job.summary)
    if (looked.findings, looked.processes) == (summary.findings, summary.processes):
        return False
    summary.findings, summary.processes = looked.findings, looked.processes
    job.summary = summary.dump()
    return True


async def keep_watching(database: Database, settings: Settings, readings: RunReadings) -> None:
    """Look at sent runs that are running, also when nothing arrives: silence is a finding, too."""
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        try:
            await watch_once(database, settings, readings)
        except SQLAlchemyError as problem:
            log.warning("could not look at sent runs", reason=type(problem).__name__)
        except Exception as problem:
            # One run that cannot be looked at must not hide the silence of all others.
            log.error("looking at sent runs failed", exc_info=problem)


async def watch_once(database: Database, settings: Settings, readings: RunReadings) -> None:
    """One look at the sent runs that say that they are running: the newest of each person, in turns."""
    newest_first = TrainingJob.updated_at.desc()
    turn = func.row_number().over(partition_by=TrainingJob.user_id, order_by=newest_first)
    running = select(TrainingJob.id).where(TrainingJob.kind == "run", TrainingJob.status == "running")
    async with database.read() as session:
        ids = list(await session.scalars(running.order_by(turn, newest_first).limit(_MOST_WATCHED)))
    for run_id in ids:
        looked = await _look(readings, run_directory(settings, run_id), ended=False)
        async with database.read() as session:
            row = await session.get(TrainingJob, run_id)
        if row is None or row.status != "running" or not _note(row, looked):
            continue
        async with database.write() as session:
            locked = await lock_job(session, run_id)
            if locked is not None and locked.status == "running" and _note(locked, looked):
                await announce(session, locked)


def _take_over(job: TrainingJob, latest: dict[str, Any]) -> None:
    """The state that the run itself says."""
    said = reported_state(latest)
    job.status = said.status
    job.attempt = job.attempt if said.attempt is None else said.attempt
    if job.attempt <= 1 and said.started is not None:
        job.start_time = said.started
    job.end_time = (said.updated or now()) if job.status in ENDED else None
    job.error_code, job.error_message = said.error_code, said.error_message


def _size_of(run_dir: Path) -> int:
    return sum(facts.st_size for _, facts in walk_beneath(run_dir) if stat.S_ISREG(facts.st_mode))


async def _measure(session: AsyncSession, job: TrainingJob, size: int) -> None:
    """No worker measures what a machine elsewhere has sent."""
    await count_files(session, job.id, job.user_id, size + _config_bytes(job.config))


async def _fail(database: Database, run_id: UUID, sentence: str, size: int) -> None:
    async with database.write() as session:
        job = await lock_job(session, run_id)
        if job is not None:
            job.status, job.end_time = "failed", now()
            job.error_code, job.error_message = "unreadable_run", sentence
            await announce(session, job)
            # What cannot be read takes as much room as what can.
            await _measure(session, job, size)
