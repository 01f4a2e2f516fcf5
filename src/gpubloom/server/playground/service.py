"""Opening playgrounds, finding them again, and waiting until one is ready.

A playground is a serve job, whose id stays when it is reopened.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import anyio.to_thread
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.db.database import Database
from gpubloom.server.jobs import service as jobs
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.inputs import find_inputs
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.jobs.tasks import Subject, create_task, read_task, subject_of
from gpubloom.server.models.tables import Model
from gpubloom.server.playground.endpoint import Endpoint, read_endpoint
from gpubloom.server.playground.proxy import NotReady
from gpubloom.server.playground.schemas import OpenPlayground, State
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.projects.schemas import ProjectIn
from gpubloom.server.projects.service import create_project
from gpubloom.server.projects.service import visible_to as visible_projects
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings

Row = tuple[TrainingJob, Project]

_PROJECT = "Playground"

_LOOK_SECONDS = 0.25


async def list_playgrounds(session: AsyncSession, principal: Principal) -> Sequence[Row]:
    """A person's playgrounds that have not ended, newest first."""
    rows = await session.execute(
        jobs.visible_to(principal)
        .where(TrainingJob.kind == "serve", TrainingJob.status.not_in(ENDED))
        .order_by(TrainingJob.queued_at.desc(), TrainingJob.id)
    )
    return [(job, project) for job, project in rows]


async def get_playground(session: AsyncSession, principal: Principal, job_id: UUID) -> Row:
    """One playground of one's own, running or not."""
    job, project = await jobs.get_job(session, principal, job_id)
    if job.kind != "serve":
        raise NotFound("This playground does not exist.")
    return job, project


async def open_playground(
    session: AsyncSession, principal: Principal, settings: Settings, wanted: OpenPlayground
) -> Row:
    """The playground of a model: the one that runs, the last one opened again, or a new one."""
    subject = await _subject(session, principal, settings, wanted)
    other = None
    if wanted.other_checkpoint_id is not None and wanted.job_id is not None:
        found = await subject_of(session, principal, settings, wanted.job_id, wanted.other_checkpoint_id)
        other = str(found.path)
    existing = await _newest_of(session, principal, subject)
    if existing is not None and existing.status not in ENDED:
        stopping = existing.status == "cancelling"
        lacks_other = other is not None and existing.config.get("other") != other
        if not stopping and not lacks_other and not _outdated(existing, subject.parent):
            return existing, subject.project
        if not stopping:
            # It holds weights from before the training went on, or another checkpoint beside it.
            await jobs.request_action(session, principal, existing.id, "cancel", settings)
        # A new one takes its place when it is gone.
        existing = None
    fields = {"kind": "serve", "idle_minutes": wanted.idle_minutes, "other": other}
    if existing is None:
        return await create_task(session, principal, subject, fields, settings), subject.project
    job, project = await jobs.request_action(session, principal, existing.id, "reopen", settings)
    job.config = read_task({**job.config, **fields, "model": str(subject.path)}).model_dump(mode="json")
    return job, project


async def _subject(
    session: AsyncSession, principal: Principal, settings: Settings, wanted: OpenPlayground
) -> Subject:
    # Locked: of two clicks at once, the second one finds the playground of the first.
    if wanted.model_id is not None and wanted.job_id is None and wanted.checkpoint_id is None:
        await session.scalar(
            select(Model.id)
            .where(Model.id == wanted.model_id, Model.user_id == principal.id)
            .with_for_update()
        )
        inputs = await find_inputs(session, principal, settings, dataset_id=None, model_id=wanted.model_id)
        assert inputs.model is not None
        assert inputs.model_path is not None
        project = await _project(session, principal, settings)
        return Subject(Path(inputs.model_path), inputs.model.name[:120], project, model_id=inputs.model.id)
    if wanted.job_id is not None and wanted.model_id is None:
        await jobs.lock_own_job(session, principal, wanted.job_id)
        return await subject_of(session, principal, settings, wanted.job_id, wanted.checkpoint_id)
    raise InvalidInput.for_field(
        "job_id", "Send exactly one of job_id and model_id.", code="contradictory_fields"
    )


async def _project(session: AsyncSession, principal: Principal, settings: Settings) -> Project:
    """The project of a playground: every job needs one, also for a model that was not trained here."""
    found = await session.scalar(
        visible_projects(principal).where(Project.name == _PROJECT).order_by(Project.created_at).limit(1)
    )
    if found is not None:
        return found
    body = ProjectIn(name=_PROJECT, description="Playgrounds of models that were not trained here.")
    return await create_project(session, principal, body, settings)


async def _newest_of(session: AsyncSession, principal: Principal, subject: Subject) -> TrainingJob | None:
    about = (
        TrainingJob.parent_id == subject.parent.id
        if subject.parent is not None
        else (TrainingJob.parent_id.is_(None)) & (TrainingJob.model_id == subject.model_id)
    )
    row = (
        await session.execute(
            jobs.visible_to(principal)
            .where(
                TrainingJob.kind == "serve",
                about,
                TrainingJob.checkpoint_id.is_not_distinct_from(subject.checkpoint_id),
            )
            .order_by(TrainingJob.created_at.desc(), TrainingJob.id)
            .limit(1)
        )
    ).first()
    return None if row is None else row[0]


def _outdated(serving: TrainingJob, training: TrainingJob | None) -> bool:
    """Whether the training was extended after its finished model was loaded."""
    return (
        training is not None
        and serving.status != "queued"
        and serving.checkpoint_id is None
        and training.end_time is not None
        and training.end_time > serving.queued_at
    )


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
    """The endpoint of a playground, waiting some seconds if needed. Raises with the reason if it is not
    ready.
    """
    deadline = time.monotonic() + wait_seconds
    run_dir = run_directory(settings, job_id)
    while True:
        async with database.read() as session:
            job = await session.get(TrainingJob, job_id)
        if job is None:
            raise NotFound("This playground does not exist.")
        endpoint = await anyio.to_thread.run_sync(read_endpoint, run_dir)
        state = state_of(job, endpoint)
        if state == "ready" and endpoint is not None:
            return endpoint
        if state in {"ended", "stopping"}:
            raise Conflict(_gone(job), code="not_running")
        if time.monotonic() >= deadline:
            raise NotReady(
                "The model is waiting for a free device. Try again later."
                if state == "waiting"
                else "The model is loading. Try again in a few seconds."
            )
        await asyncio.sleep(_LOOK_SECONDS)


def _gone(job: TrainingJob) -> str:
    if job.status == "failed":
        return f"The model could not be loaded. {job.error_message or ''}".strip()
    why = f" {job.error_message}" if job.error_message else ""
    return f"The model is no longer loaded.{why} Open the playground again."
