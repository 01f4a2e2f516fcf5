"""Training jobs under `/training-jobs`, in camelCase.

These routes do what `/jobs` does, with the same code. Everything else that was once below `/training-jobs` is
gone: only pages of an earlier version of the web app ask for it.
"""

from typing import Annotated, NoReturn
from uuid import UUID

from fastapi import APIRouter, Query
from sqlalchemy import Select

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_STREAM
from gpubloom.server.db.database import CurrentDatabase, ReadSession
from gpubloom.server.db.pages import PageQuery, read_page
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.jobs import launch_routes, service
from gpubloom.server.jobs.launch import CurrentOfferService
from gpubloom.server.jobs.metrics import read_rows
from gpubloom.server.jobs.present import training_of
from gpubloom.server.jobs.stream_frames import EventStream
from gpubloom.server.jobs.stream_routes import stream_job
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.jobs.training_job_schemas import (
    CamelJob,
    CamelJobs,
    CamelNewJob,
    CamelQueuedJob,
    MetricRow,
    MetricRows,
)
from gpubloom.server.problems import Gone

router = APIRouter(prefix="/training-jobs", tags=["training jobs"])


@router.get("")
async def list_training_jobs(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: PageQuery,
    project_id: Annotated[UUID | None, Query(alias="projectId")] = None,
) -> CamelJobs:
    """List the user's training jobs, newest first."""
    own: Select[TrainingJob] = service.visible_to(principal).with_only_columns(TrainingJob)
    own = own.where(TrainingJob.kind == "train").order_by(TrainingJob.created_at.desc(), TrainingJob.id)
    if project_id is not None:
        own = own.where(TrainingJob.project_id == project_id)
    rows, total = await read_page(session, own, page, searched=(TrainingJob.name,))
    return CamelJobs(items=[training_of(row) for row in rows], total=total)


@router.post("", status_code=201)
async def create_training_job(
    body: CamelNewJob,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    offer_service: CurrentOfferService,
    creation: CurrentCreation,
) -> CamelQueuedJob:
    """Queue a training job for an existing project, or for a new project that is created with it."""
    made = await launch_routes.create_job(body, principal, database, settings, offer_service, creation)
    return CamelQueuedJob(
        **made.model_dump(include=set(CamelJob.model_fields) - {"config"}),
        config=TrainConfig.camel_names(made.requested_config),
        ignored=made.ignored,
    )


@router.get("/{job_id}")
async def read_training_job(job_id: UUID, principal: CurrentPrincipal, session: ReadSession) -> CamelJob:
    """Return one training job."""
    job, _ = await service.get_job(session, principal, job_id)
    return training_of(job)


@router.get("/{job_id}/metrics")
async def read_metric_rows(
    job_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
) -> MetricRows:
    """Return the newest steps of a training job, one row per step."""
    job, _ = await service.get_job(session, principal, job_id)
    steps = read_summary(job.summary).facts.get("steps_per_epoch")
    steps_per_epoch = steps if isinstance(steps, int) else None
    rows = await read_rows(session, job.id, limit=limit, steps_per_epoch=steps_per_epoch)
    return MetricRows(items=[MetricRow.model_validate(row) for row in rows])


router.add_api_route(
    "/{job_id}/stream",
    stream_job,
    methods=["GET"],
    response_class=EventStream,
    dependencies=[HOLDS_STREAM],
)


@router.api_route(
    "/{path:path}",
    methods=["GET", "POST", "PATCH", "PUT", "DELETE"],
    include_in_schema=False,
    response_model=None,
)
async def moved(path: str) -> NoReturn:
    """Tell pages of an earlier version of the web app to reload."""
    raise Gone("GPU Bloom was updated. Reload this page.", code="reload_page")
