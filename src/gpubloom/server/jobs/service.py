"""Operations on jobs. Every query filters by the owner; states change only as `states.py` allows."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan.tasks import FindLearningRateTask
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.jobs.events import announce
from gpubloom.server.jobs.inputs import Inputs
from gpubloom.server.jobs.launch import Launch, set_default_limits
from gpubloom.server.jobs.machines import is_lost, let_go
from gpubloom.server.jobs.states import (
    ENDED,
    Action,
    after,
    check_action_allowed,
    name_of,
)
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.problems import Conflict, InvalidInput, NotFound, TooManyRequests
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import GIGABYTE, quota_exceeded, read_usage

QUEUE_RETRY_SECONDS = 60


def visible_to(principal: Principal) -> Select[TrainingJob, Project]:
    """The jobs a person may see, with their projects: their own."""
    return (
        select(TrainingJob, Project)
        .join(Project, Project.id == TrainingJob.project_id)
        .where(TrainingJob.user_id == principal.id)
    )


async def get_job(session: AsyncSession, principal: Principal, job_id: UUID) -> tuple[TrainingJob, Project]:
    """One job. Jobs of other users are not found."""
    row = (await session.execute(visible_to(principal).where(TrainingJob.id == job_id))).one_or_none()
    if row is None:
        raise NotFound("This job does not exist.")
    return row[0], row[1]


async def lock_own_job(
    session: AsyncSession, principal: Principal, job_id: UUID
) -> tuple[TrainingJob, Project]:
    """One's own job, locked for a change."""
    row = (
        await session.execute(
            visible_to(principal)
            .where(TrainingJob.id == job_id)
            .with_for_update(of=TrainingJob)
            .execution_options(populate_existing=True)
        )
    ).one_or_none()
    if row is None:
        raise NotFound("This job does not exist.")
    return row[0], row[1]


async def create_job(
    session: AsyncSession,
    principal: Principal,
    project: Project,
    launch: Launch,
    inputs: Inputs,
    *,
    name: str,
    gpu_type: str | None,
    host_memory: int | None,
    max_attempts: int,
    finder: FindLearningRateTask | None = None,
    offer: dict[str, Any] | None = None,
    budget: float | None = None,
    max_hours: float | None = None,
    requested_config: dict[str, Any] | None = None,
    secrets: list[str] | None = None,
    failover: list[dict[str, Any]] | None = None,
    settings: Settings,
) -> TrainingJob:
    """Queue a training job or a learning-rate finder."""
    job = TrainingJob(
        id=uuid4(),
        project_id=project.id,
        user_id=principal.id,
        name=name,
        kind="train" if finder is None else finder.kind,
        config=(finder or launch.config).model_dump(mode="json"),
        plan=launch.plan.model_dump(mode="json"),
        dataset_id=None if inputs.dataset is None else inputs.dataset.id,
        eval_dataset_id=None if inputs.eval_dataset is None else inputs.eval_dataset.id,
        model_id=None if inputs.model is None else inputs.model.id,
        gpu_type=gpu_type,
        gpus=launch.gpus,
        host_memory=host_memory,
        max_attempts=max_attempts,
        target="local" if offer is None else offer["target"],
        offer=offer,
        budget=budget,
        max_hours=max_hours,
        requested_config=requested_config,
        secrets=secrets,
        failover=failover,
    )
    return await queue_job(session, principal, job, settings)


async def queue_job(
    session: AsyncSession, principal: Principal, job: TrainingJob, settings: Settings
) -> TrainingJob:
    """Store a new job for the next worker that can take it."""
    await require_place(session, principal, settings)
    set_default_limits(job)
    job.status, job.position = "queued", 0
    session.add(job)
    await session.flush()
    await record_change(session, principal, job, "training_job.created")
    return job


async def require_place(session: AsyncSession, principal: Principal, settings: Settings) -> None:
    """Raises when a person has as many jobs in the queue as they may, or no room for what jobs write."""
    # Locked, so that requests at once are counted one after the other.
    await session.execute(select(User.id).where(User.id == principal.id).with_for_update(key_share=True))
    waiting = await session.scalar(
        select(func.count())
        .select_from(TrainingJob)
        .where(TrainingJob.user_id == principal.id, TrainingJob.status == "queued")
    )
    most = settings.max_queued_jobs_per_user
    if (waiting or 0) >= most:
        raise TooManyRequests(
            f"You already have {most} jobs in the queue, which is the limit. Wait until one starts, or "
            "cancel one. The operator can raise BLOOM_MAX_QUEUED_JOBS_PER_USER.",
            code="too_many_queued_jobs",
            retry_after=QUEUE_RETRY_SECONDS,
        )
    if (usage := await read_usage(session, principal.id)).total >= settings.user_quota_gb * GIGABYTE:
        raise quota_exceeded(usage.total, settings, "a job needs room for its files")


async def record_change(session: AsyncSession, principal: Principal, job: TrainingJob, action: str) -> None:
    """Record a change in the audit trail, and notify the viewers of the job."""
    record(
        session,
        principal.actor,
        action,
        f"training_job:{job.id}",
        job.project_id,
        name=job.name,
        kind=job.kind,
    )
    await announce(session, job)
    await session.flush()


async def request_action(
    session: AsyncSession, principal: Principal, job_id: UUID, action: Action, settings: Settings
) -> tuple[TrainingJob, Project]:
    """Pause, resume or cancel: stored here, carried out by the worker that holds the lease."""
    job, project = await lock_own_job(session, principal, job_id)
    check_action_allowed(job.kind, action, job.config)
    if await is_lost(session, job, settings.machine_timeout):
        _change_lost(job, action)
    else:
        job.status = after(action, job.status)
    if job.kind == "run" and job.status == "cancelling":
        # No worker follows it. If its sender is heard from again, the run is running again.
        job.status = "cancelled"
    job.want = {"pause": "pause", "cancel": "cancel"}.get(action, "run")  # type: ignore[assignment]
    job.control_version += 1
    if action in {"resume", "reopen"}:
        # It is not stored as queued yet, so it does not count itself.
        with session.no_autoflush:
            await require_place(session, principal, settings)
        queue_again(job)
    elif job.status in ENDED:
        job.end_time = now()
    await record_change(session, principal, job, f"training_job.{action}")
    return job, project


def _change_lost(job: TrainingJob, action: Action) -> None:
    """Carry out a request here because no worker is left to do it."""
    let_go(job)
    if (action, job.status) != ("cancel", "cancelled"):
        job.status = after(action, job.status)
    if job.status == "cancelling":
        # On a rented instance, which the reconciler terminates once no job owns it.
        let_go(job)


def queue_again(job: TrainingJob) -> None:
    """Queue the job for its next attempt, and clear the error of the last one."""
    job.queued_at = now()
    job.end_time = None
    job.error_code = None
    job.error_message = None
    job.attempts_without_progress = 0
    if job.offer is not None and (hourly := job.offer.get("new_hourly")) is not None:
        # The owner saw the new price before resuming.
        kept = {name: value for name, value in job.offer.items() if name != "new_hourly"}
        job.offer = {**kept, "hourly": hourly}


async def extend(
    session: AsyncSession,
    principal: Principal,
    job_id: UUID,
    settings: Settings,
    *,
    epochs: int | None,
    max_steps: int | None,
) -> tuple[TrainingJob, Project]:
    """Train a completed job further; its schedule is rebuilt for the new length."""
    job, project = await lock_own_job(session, principal, job_id)
    check_action_allowed(job.kind, "extend", job.config)
    status = after("extend", job.status)
    config = dict(job.config)
    if epochs is None and max_steps is None:
        raise InvalidInput.for_field(
            "epochs", "Send the total number of epochs or steps.", code="length_missing"
        )
    if epochs is not None:
        if epochs < config["epochs"]:
            raise InvalidInput.for_field(
                "epochs",
                f"The job already has {config['epochs']} epochs. Send a larger number.",
                code="already_trained",
            )
        config["epochs"] = epochs
        config["max_steps"] = None
    if max_steps is not None:
        taken = read_summary(job.summary).step or 0
        if max_steps <= taken:
            raise InvalidInput.for_field(
                "max_steps",
                f"The job has already trained {taken} steps. Send a larger number.",
                code="already_trained",
            )
        config["max_steps"] = max_steps
    if config == job.config:
        raise InvalidInput.for_field(
            "epochs",
            "The job has already trained for this long. Send a larger number of epochs or steps.",
            code="already_trained",
        )
    await require_place(session, principal, settings)
    job.config = config
    if job.requested_config is not None:
        asked = {"epochs": epochs, "max_steps": max_steps}
        job.requested_config = {
            **job.requested_config,
            **{name: value for name, value in asked.items() if value is not None},
        }
    job.status = status
    job.want = "run"
    job.control_version += 1
    queue_again(job)
    await record_change(session, principal, job, "training_job.extend")
    return job, project


async def change_settings(
    session: AsyncSession, principal: Principal, job_id: UUID, settings: dict[str, Any]
) -> tuple[TrainingJob, Project]:
    """Change live settings. The run applies them at its next step."""
    job, project = await lock_own_job(session, principal, job_id)
    check_action_allowed(job.kind, "settings", job.config)
    if job.status in ENDED:
        raise Conflict(f"The job is {job.status}. Its settings can no longer be changed.", code="wrong_state")
    job.settings = {**job.settings, **settings}
    job.control_version += 1
    await record_change(session, principal, job, "training_job.settings")
    return job, project


async def save_now(session: AsyncSession, principal: Principal, job_id: UUID) -> tuple[TrainingJob, Project]:
    """Ask for a checkpoint at the next step."""
    job, project = await lock_own_job(session, principal, job_id)
    check_action_allowed(job.kind, "save", job.config)
    if job.status != "running":
        raise Conflict(
            f"The job is {job.status}. Only a running job can save a checkpoint.", code="wrong_state"
        )
    job.saves += 1
    job.control_version += 1
    await record_change(session, principal, job, "training_job.save")
    return job, project


async def delete_job(
    session: AsyncSession, principal: Principal, job_id: UUID, *, machine_timeout: timedelta
) -> list[UUID]:
    """Delete a job that has ended or never started, with its tasks. Returns the ids of the deleted jobs."""
    job, _ = await lock_own_job(session, principal, job_id)
    if await is_lost(session, job, machine_timeout):
        let_go(job)
    if job.status not in ENDED and job.status != "paused":
        raise Conflict(f"The job is still {job.status}. Cancel the job first.", code="wrong_state")
    tasks = list(await session.scalars(select(TrainingJob).where(TrainingJob.parent_id == job.id)))
    for task in tasks:
        if await is_lost(session, task, machine_timeout):
            let_go(task)
        if task.status not in ENDED:
            raise Conflict(
                f"The job's {name_of(task.kind)} is still {task.status}. Cancel the "
                f"{name_of(task.kind)} first.",
                code="task_in_the_way",
            )
    record(
        session,
        principal.actor,
        "training_job.deleted",
        f"training_job:{job.id}",
        job.project_id,
        name=job.name,
    )
    await session.execute(delete(TrainingJob).where(TrainingJob.id == job.id))
    return [job.id, *(task.id for task in tasks)]


async def list_checkpoints(session: AsyncSession, job_id: UUID) -> list[Checkpoint]:
    """The checkpoints that are still there, newest first."""
    rows = await session.scalars(
        select(Checkpoint)
        .where(Checkpoint.job_id == job_id, Checkpoint.removed.is_(False))
        .order_by(Checkpoint.step.desc(), Checkpoint.saved_at.desc())
    )
    return list(rows)
