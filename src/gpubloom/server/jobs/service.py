"""What people do with jobs. Whose they are is part of every query; states move by the one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Select, and_, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan.tasks import FindLearningRateTask
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.jobs.events import announce
from gpubloom.server.jobs.inputs import Inputs
from gpubloom.server.jobs.launch import Launch
from gpubloom.server.jobs.machines import is_lost, let_go
from gpubloom.server.jobs.states import (
    ACTIVE,
    ENDED,
    MODEL_TASK_KINDS,
    TOP_LEVEL_KINDS,
    Action,
    Kind,
    Status,
    after,
    check_can_be_asked,
    name_of,
)
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.projects.tables import Project


def visible_to(principal: Principal) -> Select[TrainingJob, Project]:
    """The jobs a person may see, with their projects: their own."""
    return (
        select(TrainingJob, Project)
        .join(Project, Project.id == TrainingJob.project_id)
        .where(TrainingJob.user_id == principal.id)
    )


async def list_jobs(
    session: AsyncSession,
    principal: Principal,
    *,
    kinds: Sequence[Kind],
    parent_id: UUID | None,
    project_id: UUID | None,
    statuses: Sequence[Status],
    search: str,
    limit: int,
    offset: int,
) -> tuple[list[tuple[TrainingJob, Project]], int]:
    """A page of a person's jobs, newest first, and how many there are."""
    statement = visible_to(principal)
    if kinds:
        statement = statement.where(TrainingJob.kind.in_(kinds))
    if parent_id is not None:
        statement = statement.where(TrainingJob.parent_id == parent_id)
    if project_id is not None:
        statement = statement.where(TrainingJob.project_id == project_id)
    if statuses:
        statement = statement.where(TrainingJob.status.in_(statuses))
    if search:
        statement = statement.where(
            or_(
                TrainingJob.name.icontains(search, autoescape=True),
                Project.name.icontains(search, autoescape=True),
            )
        )
    counted = statement.with_only_columns(TrainingJob.id).subquery()
    total = await session.scalar(select(func.count()).select_from(counted))
    rows = await session.execute(
        statement.order_by(TrainingJob.created_at.desc(), TrainingJob.id).limit(limit).offset(offset)
    )
    return [(job, project) for job, project in rows], total or 0


async def get_job(session: AsyncSession, principal: Principal, job_id: UUID) -> tuple[TrainingJob, Project]:
    """One job; somebody else's does not exist."""
    row = (await session.execute(visible_to(principal).where(TrainingJob.id == job_id))).one_or_none()
    if row is None:
        raise NotFound("There is no such training job.")
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
        raise NotFound("There is no such training job.")
    return row[0], row[1]


async def queue_position(session: AsyncSession, job: TrainingJob) -> int | None:
    """How many jobs of the same kind of device wait before this one, plus one; None when it does not wait."""
    if job.status != "queued" or job.target != "local":
        return None
    if job.gpus > 0:
        same_device = TrainingJob.gpus > 0
    else:
        side_slot = job.kind in MODEL_TASK_KINDS
        same_device = and_(TrainingJob.gpus == 0, TrainingJob.kind.in_(MODEL_TASK_KINDS) == side_slot)
    before = await session.scalar(
        select(func.count())
        .select_from(TrainingJob)
        .where(TrainingJob.status == "queued", TrainingJob.target == "local", same_device)
        .where(
            or_(
                TrainingJob.queued_at < job.queued_at,
                and_(TrainingJob.queued_at == job.queued_at, TrainingJob.id < job.id),
            )
        )
    )
    return (before or 0) + 1


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
) -> TrainingJob:
    """Queue a training, or a short one that finds a learning rate for it."""
    job = TrainingJob(
        id=uuid4(),
        project_id=project.id,
        user_id=principal.id,
        name=name,
        kind="train" if finder is None else finder.kind,
        config=(finder or launch.config).model_dump(mode="json"),
        plan=launch.plan.model_dump(mode="json"),
        dataset_id=None if inputs.dataset is None else inputs.dataset.id,
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
    )
    return await queue_job(session, principal, job)


async def queue_job(session: AsyncSession, principal: Principal, job: TrainingJob) -> TrainingJob:
    """Store a new job, for whoever is next to take it."""
    job.status, job.position = "queued", 0
    session.add(job)
    await session.flush()
    await tell_of_change(session, principal, job, "training_job.created")
    return job


async def tell_of_change(session: AsyncSession, principal: Principal, job: TrainingJob, action: str) -> None:
    """In the audit trail, and to whoever watches the job."""
    record(
        session,
        action,
        actor=principal.id,
        subject=f"training_job:{job.id}",
        ip_address=principal.ip_address,
        name=job.name,
        kind=job.kind,
    )
    await announce(session, job, "update", {"job": state_of(job)})
    await session.flush()


def state_of(job: TrainingJob) -> dict[str, Any]:
    """What the stream tells of a job when it changes."""
    told = read_run_report(job.summary)
    return {
        "status": job.status,
        "want": job.want,
        "settings": job.settings,
        "attempt": job.attempt,
        "summary": told.summary,
        "rowsUsed": told.rows_used,
        "rowsTotal": told.rows_total,
        "warnings": told.warnings,
        "warningsLeftOut": told.warnings_left_out,
        "errorCode": job.error_code,
        "errorMessage": job.error_message,
        "startTime": _iso(job.start_time),
        "endTime": _iso(job.end_time),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


async def ask(
    session: AsyncSession, principal: Principal, job_id: UUID, action: Action, *, machine_timeout: timedelta
) -> tuple[TrainingJob, Project]:
    """Pause, resume or cancel: stored here, carried out by whoever holds the lease."""
    job, project = await lock_own_job(session, principal, job_id)
    check_can_be_asked(job.kind, action, job.config)
    if await is_lost(session, job, machine_timeout):
        _change_lost(job, action)
    else:
        job.status = after(action, job.status)
    job.want = {"pause": "pause", "cancel": "cancel"}.get(action, "run")  # type: ignore[assignment]
    job.control_version += 1
    if action in {"resume", "reopen"}:
        queue_again(job)
    elif job.status in ENDED:
        job.end_time = now()
    await tell_of_change(session, principal, job, f"training_job.{action}")
    return job, project


def _change_lost(job: TrainingJob, action: Action) -> None:
    """Nobody is left to carry it out: it is done here."""
    let_go(job)
    if (action, job.status) != ("cancel", "cancelled"):
        job.status = after(action, job.status)
    if job.status == "cancelling":
        # On a rented instance, which the reconciler terminates once no job owns it.
        let_go(job)


def queue_again(job: TrainingJob) -> None:
    """It waits for its next attempt; what ended the last one is no longer the case."""
    job.queued_at = now()
    job.end_time = None
    job.error_code = None
    job.error_message = None
    job.attempts_without_progress = 0


async def extend(
    session: AsyncSession, principal: Principal, job_id: UUID, *, epochs: int | None, max_steps: int | None
) -> tuple[TrainingJob, Project]:
    """Train a completed job further; its schedule is rebuilt for the new length."""
    job, project = await lock_own_job(session, principal, job_id)
    check_can_be_asked(job.kind, "extend", job.config)
    status = after("extend", job.status)
    config = dict(job.config)
    if epochs is None and max_steps is None:
        raise InvalidInput.for_field(
            "epochs", "Say how many epochs or steps there should be in all.", code="length_missing"
        )
    if epochs is not None:
        if epochs < config["epochs"]:
            raise InvalidInput.for_field(
                "epochs", f"It already has {config['epochs']} epochs: ask for more.", code="already_trained"
            )
        config["epochs"] = epochs
        config["max_steps"] = None
    if max_steps is not None:
        if max_steps <= (job.summary.get("step") or 0):
            raise InvalidInput.for_field(
                "maxSteps", f"It already took {job.summary.get('step')} steps.", code="already_trained"
            )
        config["max_steps"] = max_steps
    if config == job.config:
        raise InvalidInput.for_field(
            "epochs", "It was already trained for that long: ask for more.", code="already_trained"
        )
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
    await tell_of_change(session, principal, job, "training_job.extend")
    return job, project


async def change_settings(
    session: AsyncSession, principal: Principal, job_id: UUID, settings: dict[str, Any]
) -> tuple[TrainingJob, Project]:
    """Change live settings; the run obeys at its next step."""
    job, project = await lock_own_job(session, principal, job_id)
    check_can_be_asked(job.kind, "settings", job.config)
    if job.status in ENDED:
        raise Conflict(f"A job that is {job.status} has no settings to change.", code="wrong_state")
    job.settings = {**job.settings, **settings}
    job.control_version += 1
    await tell_of_change(session, principal, job, "training_job.settings")
    return job, project


async def save_now(session: AsyncSession, principal: Principal, job_id: UUID) -> tuple[TrainingJob, Project]:
    """Ask for a checkpoint at the next step."""
    job, project = await lock_own_job(session, principal, job_id)
    check_can_be_asked(job.kind, "save", job.config)
    if job.status != "running":
        raise Conflict(f"A job that is {job.status} cannot save.", code="wrong_state")
    job.saves += 1
    job.control_version += 1
    await tell_of_change(session, principal, job, "training_job.save")
    return job, project


async def delete_job(
    session: AsyncSession, principal: Principal, job_id: UUID, *, machine_timeout: timedelta
) -> list[UUID]:
    """Remove a job that has ended, or never started, with the tasks about it; says which jobs that were."""
    job, _ = await lock_own_job(session, principal, job_id)
    if await is_lost(session, job, machine_timeout):
        let_go(job)
    if job.status not in ENDED and job.status != "paused":
        raise Conflict("Cancel the job first: it is still " + job.status + ".", code="wrong_state")
    tasks = list(await session.scalars(select(TrainingJob).where(TrainingJob.parent_id == job.id)))
    for task in tasks:
        if await is_lost(session, task, machine_timeout):
            let_go(task)
        if task.status not in ENDED:
            raise Conflict(
                f"Its {name_of(task.kind)} is still {task.status}. Cancel that first.", code="task_in_the_way"
            )
    record(
        session,
        "training_job.deleted",
        actor=principal.id,
        subject=f"training_job:{job.id}",
        ip_address=principal.ip_address,
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


async def count_jobs(session: AsyncSession, principal: Principal) -> tuple[dict[str, int], float]:
    """How many trainings are in each state, and how long all of them trained together."""
    counts = await session.execute(
        select(TrainingJob.status, func.count())
        .where(TrainingJob.user_id == principal.id, TrainingJob.kind.in_(TOP_LEVEL_KINDS))
        .group_by(TrainingJob.status)
    )
    started = await session.scalars(
        select(TrainingJob).where(
            TrainingJob.user_id == principal.id,
            TrainingJob.kind.in_(TOP_LEVEL_KINDS),
            TrainingJob.start_time.is_not(None),
        )
    )
    moment = now()
    seconds = 0.0
    for job in started:
        assert job.start_time is not None
        end = job.end_time or (moment if job.status in ACTIVE else job.updated_at)
        seconds += max(0.0, (end - job.start_time).total_seconds())
    return {str(status): count for status, count in counts}, seconds


@dataclass(frozen=True)
class RunReport:
    """The fields of `JobOut` that a job's summary holds."""

    summary: dict[str, Any]
    rows_used: int | None
    rows_total: int | None
    warnings: list[dict[str, Any]]
    warnings_left_out: int


def read_run_report(summary: dict[str, Any]) -> RunReport:
    """What a summary holds, with what has a field of its own left out of the rest."""
    # Somebody's own script may describe anything.
    facts = summary.get("facts")
    used, total = (
        (facts.get("rows_used"), facts.get("rows_total")) if isinstance(facts, dict) else (None, None)
    )
    counted = isinstance(used, int) and isinstance(total, int)
    return RunReport(
        summary={
            name: value for name, value in summary.items() if name not in {"warnings", "warningsLeftOut"}
        },
        rows_used=used if counted else None,
        rows_total=total if counted else None,
        warnings=summary.get("warnings") or [],
        warnings_left_out=summary.get("warningsLeftOut") or 0,
    )
