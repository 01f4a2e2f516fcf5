"""The checkpoints of all training jobs of a user."""

from pathlib import PurePath
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from sqlalchemy import func, or_, select

from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import ReadSession
from gpubloom.server.db.pages import PageQuery
from gpubloom.server.jobs.schemas import CheckpointOfJob, CheckpointPage
from gpubloom.server.jobs.service import visible_to
from gpubloom.server.jobs.summary import CheckpointDetails, read_summary
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project

router = APIRouter(tags=["jobs"])


@router.get("/checkpoints")
async def list_all_checkpoints(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: PageQuery,
    project_id: Annotated[UUID | None, Query()] = None,
    best: Annotated[bool, Query(description="Return only the best checkpoint of each training job.")] = False,
) -> CheckpointPage:
    """List the checkpoints that still exist, newest first."""
    statement = (
        visible_to(principal)
        .join(Checkpoint, Checkpoint.job_id == TrainingJob.id)
        .outerjoin(Dataset, Dataset.id == TrainingJob.dataset_id)
        .outerjoin(Model, Model.id == TrainingJob.model_id)
        .where(Checkpoint.removed.is_(False), TrainingJob.kind == "train")
    )
    if project_id is not None:
        statement = statement.where(TrainingJob.project_id == project_id)
    if best:
        statement = statement.where(Checkpoint.best)
    if page.search:
        statement = statement.where(
            or_(
                *(
                    column.icontains(page.search, autoescape=True)
                    for column in (TrainingJob.name, Project.name, Dataset.name, Model.name)
                )
            )
        )
    counted = statement.with_only_columns(Checkpoint.id).subquery()
    total = await session.scalar(select(func.count()).select_from(counted))
    rows = await session.execute(
        statement.add_columns(Checkpoint, Dataset.name, Model.name)
        .order_by(Checkpoint.saved_at.desc(), Checkpoint.id)
        .limit(page.limit)
        .offset(page.offset)
    )
    return CheckpointPage(items=[_shown(*row) for row in rows], total=total or 0)


def _shown(
    job: TrainingJob,
    project: Project,
    checkpoint: Checkpoint,
    dataset_name: str | None,
    model_name: str | None,
) -> CheckpointOfJob:
    # The report of a run is not trusted: the number of parameters may be NaN.
    summary = read_summary(job.summary)
    parameters = summary.facts.get("parameters")
    speed = summary.values.get("train/tokens_per_second")
    return CheckpointOfJob(
        id=checkpoint.id,
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        path=checkpoint.path,
        size=checkpoint.size,
        metrics=checkpoint.metrics,
        best=checkpoint.best and summary.has_best,
        saved_at=checkpoint.saved_at,
        details=CheckpointDetails.of(checkpoint.details),
        job_id=job.id,
        job_name=job.name,
        job_status=job.status,
        project_id=project.id,
        project_name=project.name,
        method=job.config.get("method"),
        base_model=model_name or _base_model(job.config.get("model") or {}),
        dataset_name=dataset_name,
        parameters=parameters if isinstance(parameters, int) else None,
        tokens_per_second=None if speed is None else speed.value,
    )


def _base_model(model: dict[str, Any]) -> str | None:
    """The display name of a model that was not given by id: its folder, or its preset."""
    if model.get("path"):
        return PurePath(str(model["path"])).name
    return model.get("preset")
