"""A job's row as JSON. What an earlier version stored and this one cannot read is shown as absent."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan import Plan, TrainConfig
from gpubloom.plan.tasks import Task, TaskResult, result_from, task_from
from gpubloom.scripts.task import ScriptTask, script_task
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.files import has_files, has_model
from gpubloom.server.jobs.listing import queue_position
from gpubloom.server.jobs.schemas import CamelJob, JobOffer, JobOut, LiveSettings
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS
from gpubloom.server.jobs.summary import read_run_report
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings

Shape = TypeVar("Shape", bound=BaseModel)


async def job_out(session: AsyncSession, settings: Settings, job: TrainingJob, project: Project) -> JobOut:
    """What its owner sees of a job."""
    dataset = None if job.dataset_id is None else await session.get(Dataset, job.dataset_id)
    model = None if job.model_id is None else await session.get(Model, job.model_id)
    config = _config(job)
    return JobOut(
        id=job.id,
        kind=job.kind,
        parent_id=job.parent_id,
        checkpoint_id=job.checkpoint_id,
        dataset_id=job.dataset_id,
        dataset_name=None if dataset is None else dataset.name,
        model_id=job.model_id,
        model_name=None if model is None else model.name,
        project_id=job.project_id,
        project_name=project.name,
        user_id=job.user_id,
        name=job.name,
        status=job.status,
        config=config,
        requested_config=_requested_config(job, config),
        task=_task(job),
        plan=_readable(Plan, job.plan),
        gpu_type=job.gpu_type,
        host_memory=job.host_memory,
        target=job.target,
        offer=_readable(JobOffer, job.offer),
        budget=job.budget,
        max_hours=job.max_hours,
        want=job.want,
        settings=LiveSettings.stored(job.settings),
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        **vars(read_run_report(job.summary)),
        result=_result(job),
        position=job.position,
        queue_position=await queue_position(session, job),
        has_model=job.status == "completed"
        and (has_files if job.kind == "export" else has_model)(settings, job.id),
        error_code=job.error_code,
        error_message=job.error_message,
        start_time=job.start_time,
        end_time=job.end_time,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )


def training_of(job: TrainingJob) -> CamelJob:
    """A training as the product's first description shows it."""
    return CamelJob(
        id=job.id,
        project_id=job.project_id,
        user_id=job.user_id,
        name=job.name,
        status=job.status,
        config=TrainConfig.camel_names(_requested_config(job, _config(job))),
        gpu_type=job.gpu_type,
        host_memory=job.host_memory,
        start_time=job.start_time,
        end_time=job.end_time,
        error_message=job.error_message,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )


def _config(job: TrainingJob) -> TrainConfig | None:
    return _readable(TrainConfig, job.config) if job.kind == "train" else None


def _readable(model: type[Shape], stored: dict[str, Any] | None) -> Shape | None:
    if not stored:
        return None
    try:
        return model.model_validate(stored)
    except ValidationError:
        return None


def _task(job: TrainingJob) -> Task | ScriptTask | None:
    if job.kind == "train":
        return None
    try:
        return script_task(job.config) if job.kind == "script" else task_from(job.config)
    except ValueError:
        return None


def _result(job: TrainingJob) -> TaskResult | None:
    if job.result is None or job.kind in TOP_LEVEL_KINDS:
        return None
    try:
        return result_from(job.kind, job.result)
    except ValueError:
        return None


def _requested_config(job: TrainingJob, config: TrainConfig | None) -> dict[str, Any]:
    if job.requested_config is not None:
        return job.requested_config
    if config is None:
        return {}
    # A row of an earlier version: what differs from the defaults, without what the server added.
    return config.model_dump(mode="json", exclude_defaults=True, exclude={"name", "device", "processes"})
