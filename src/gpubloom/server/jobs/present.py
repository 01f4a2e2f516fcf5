"""A job's row as JSON."""

from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan import TrainConfig
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs import service
from gpubloom.server.jobs.files import has_files, has_model
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.summary import read_run_report
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings


async def job_out(session: AsyncSession, settings: Settings, job: TrainingJob, project: Project) -> JobOut:
    """What its owner sees of a job."""
    dataset = None if job.dataset_id is None else await session.get(Dataset, job.dataset_id)
    model = None if job.model_id is None else await session.get(Model, job.model_id)
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
        config=job.config,
        requested_config=_requested_config(job),
        plan=job.plan,
        gpu_type=job.gpu_type,
        host_memory=job.host_memory,
        target=job.target,
        offer=job.offer,
        budget=job.budget,
        max_hours=job.max_hours,
        want=job.want,
        settings=job.settings,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        **vars(read_run_report(job.summary)),
        result=job.result,
        position=job.position,
        queue_position=await service.queue_position(session, job),
        has_model=job.status == "completed"
        and (has_files if job.kind == "export" else has_model)(settings, job.id),
        error_code=job.error_code,
        error_message=job.error_message,
        start_time=job.start_time,
        end_time=job.end_time,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )


def _requested_config(job: TrainingJob) -> dict[str, Any]:
    if job.requested_config is not None:
        return job.requested_config
    if job.kind != "train":
        return {}
    # A row of an earlier version: what differs from the defaults, without what the server added.
    try:
        config = TrainConfig.model_validate(job.config)
    except ValidationError:
        return job.config
    return config.model_dump(mode="json", exclude_defaults=True, exclude={"name", "device", "processes"})
