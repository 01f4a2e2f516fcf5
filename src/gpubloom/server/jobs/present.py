"""A job's row as JSON. What an earlier version stored and this one cannot read is shown as absent."""

from pathlib import PurePath
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan import Plan, TrainConfig
from gpubloom.plan.tasks import Task, TaskResult, result_from, task_from
from gpubloom.scripts.task import ScriptTask, script_task
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.files import has_files, has_model
from gpubloom.server.jobs.listing import queue_position
from gpubloom.server.jobs.schemas import Branch, JobOffer, JobOut, LiveSettings, MixedDatasetOut
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS
from gpubloom.server.jobs.summary import read_run_report, read_summary
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.jobs.training_job_schemas import CamelJob
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings

# Error codes of a run that fails again with the same data and the same config.
_DATA_CODES = frozenset(
    {
        "all_held_out",
        "binary_file",
        "data_changed",
        "data_empty",
        "data_not_found",
        "data_too_short",
        "data_without_text",
        "format_uncertain",
        "incomplete_mapping",
        "invalid_token_file",
        "missing_column",
        "no_data",
        "no_examples",
        "not_finite",
        "not_utf8",
        "template_invalid",
        "token_out_of_range",
        "unreadable_file",
    }
)

Shape = TypeVar("Shape", bound=BaseModel)


async def job_out(session: AsyncSession, settings: Settings, job: TrainingJob, project: Project) -> JobOut:
    """A job as its owner sees it."""
    dataset = None if job.dataset_id is None else await session.get(Dataset, job.dataset_id)
    held = None if job.eval_dataset_id is None else await session.get(Dataset, job.eval_dataset_id)
    model = None if job.model_id is None else await session.get(Model, job.model_id)
    config = _config(job)
    return JobOut(
        id=job.id,
        kind=job.kind,
        parent_id=job.parent_id,
        checkpoint_id=job.checkpoint_id,
        dataset_id=job.dataset_id,
        dataset_name=None if dataset is None else dataset.name,
        eval_dataset_id=job.eval_dataset_id,
        eval_dataset_name=None if held is None else held.name,
        mix=await _mix(session, config),
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
        failover=[offer for each in job.failover or [] if (offer := _readable(JobOffer, each)) is not None],
        budget=job.budget,
        max_hours=job.max_hours,
        want=job.want,
        settings=LiveSettings.stored(job.settings),
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        **vars(read_run_report(job.summary)),
        branch=_readable(Branch, job.branch),
        result=_result(job),
        position=job.position,
        queue_position=await queue_position(session, job),
        has_model=job.status == "completed"
        and (has_files if job.kind == "export" else has_model)(settings, job.id),
        error_code=job.error_code,
        error_message=_with_name(job.error_message, config, dataset),
        failed_on_data=failed_on_data(job),
        start_time=job.start_time,
        end_time=job.end_time,
        active_seconds=job.active_seconds,
        active_since=job.active_since,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )


async def _mix(session: AsyncSession, config: TrainConfig | None) -> list[MixedDatasetOut]:
    """The datasets that are mixed into the data, by the ids in their paths."""
    found = []
    for each in [] if config is None else config.data.mix:
        try:
            dataset_id = UUID(PurePath(each.path).parent.name)
        except ValueError:
            # A path of the config that belongs to no dataset.
            continue
        dataset = await session.get(Dataset, dataset_id)
        found.append(
            MixedDatasetOut(
                dataset_id=dataset_id, name=None if dataset is None else dataset.name, weight=each.weight
            )
        )
    return found


def failed_on_data(job: TrainingJob) -> bool:
    """Whether a job failed for a reason that lies in its data, so that the same start fails again."""
    if job.status != "failed":
        return False
    error = read_summary(job.summary).error
    return job.error_code in _DATA_CODES or (error is not None and (error.cause or "").startswith("data_"))


def _with_name(message: str | None, config: TrainConfig | None, dataset: Dataset | None) -> str | None:
    """A message with the dataset's name in place of its path on this server, which tells a person nothing."""
    path = None if config is None else config.data.train_path
    if message is None or path is None or dataset is None:
        return message
    return message.replace(path, dataset.name).replace(PurePath(path).name, dataset.name)


def training_of(job: TrainingJob) -> CamelJob:
    """A training job for `/training-jobs`."""
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
