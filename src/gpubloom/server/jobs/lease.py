"""Claiming a job and keeping the right to write about it. Every function is one short transaction's work.

People take turns: the next job is one of whoever has the fewest jobs on machines of the same sort, of these
whoever had no turn for longest, and of that person's jobs the one that waits longest. So a person with
hundreds of jobs in the queue delays another one by one job, not by hundreds.

The token is the right: `holding()` finds the row only while it still carries it, locked for the rest of the
transaction. A worker that lost its lease finds nothing and can change nothing. Leases run by the database's
clock: that of a worker may be wrong.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, and_, exists, func, literal, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.db.clock import database_time
from gpubloom.server.jobs.states import ACTIVE, MODEL_TASK_KINDS
from gpubloom.server.jobs.tables import Machine, QueueTurn, TrainingJob

LEASE = timedelta(seconds=20)
RENEW_EVERY_SECONDS = 5.0


class LeaseLost(Exception):
    """Another worker follows this job now, or it is gone."""


@dataclass(frozen=True)
class Claimant:
    """A worker, and the machine whose run directories it can reach."""

    worker: str
    machine: str


async def claim_abandoned(session: AsyncSession, claimant: Claimant) -> TrainingJob | None:
    """A job of this machine whose worker stopped renewing; its agent may well be alive."""
    return await _claim(
        session,
        claimant,
        TrainingJob.status.in_(ACTIVE),
        TrainingJob.machine == claimant.machine,
        or_(TrainingJob.lease_expires.is_(None), TrainingJob.lease_expires < database_time()),
    )


@dataclass(frozen=True)
class FreeSlots:
    """Devices of a machine: GPUs and their names, the CPU slot of trainings, the side slot of model tasks."""

    gpus: int = 0
    cpu: bool = False
    side_slot: bool = False
    gpu_names: Sequence[str] = ()


def waiting_for(claimant: Claimant, free_slots: FreeSlots) -> list[ColumnElement[bool]]:
    """The jobs that wait and that such devices of this machine can take."""
    right_kind = [literal(name).icontains(TrainingJob.gpu_type) for name in free_slots.gpu_names]
    fits = [
        and_(
            TrainingJob.gpus > 0,
            TrainingJob.gpus <= free_slots.gpus,
            or_(TrainingJob.gpu_type.is_(None), *right_kind),
        )
    ]
    is_model_task = TrainingJob.kind.in_(MODEL_TASK_KINDS)
    if free_slots.cpu:
        fits.append(and_(TrainingJob.gpus == 0, ~is_model_task))
    if free_slots.side_slot:
        fits.append(and_(TrainingJob.gpus == 0, is_model_task))
    return [
        TrainingJob.status == "queued",
        TrainingJob.target == "local",
        # A job that ran before continues on the machine that has its checkpoints.
        or_(TrainingJob.machine.is_(None), TrainingJob.machine == claimant.machine),
        or_(*fits),
    ]


async def claim_queued(session: AsyncSession, claimant: Claimant, free: FreeSlots) -> TrainingJob | None:
    """The job whose turn it is among those that the free devices can take."""
    return await _claim(
        session, claimant, *waiting_for(claimant, free), same_sort=TrainingJob.target == "local"
    )


async def claim_remote(
    session: AsyncSession, claimant: Claimant, targets: Sequence[str]
) -> TrainingJob | None:
    """The job whose turn it is among those for rented machines: they need no device of this one."""
    return await _claim(
        session, claimant, *waiting_for_remote(claimant, targets), same_sort=TrainingJob.target != "local"
    )


def waiting_for_remote(claimant: Claimant, targets: Sequence[str]) -> list[ColumnElement[bool]]:
    """The jobs for machines of these providers that wait and whose run directory is here, or is to be."""
    return [
        TrainingJob.status == "queued",
        TrainingJob.target.in_(targets),
        or_(TrainingJob.machine.is_(None), TrainingJob.machine == claimant.machine),
    ]


async def _claim(
    session: AsyncSession,
    claimant: Claimant,
    *conditions: ColumnElement[bool],
    same_sort: ColumnElement[bool] = true(),  # noqa: B008 - a constant of SQL
) -> TrainingJob | None:
    # A machine that was declared gone claims nothing until it has stopped the runs that it lost.
    is_gone = exists().where(Machine.name == claimant.machine, Machine.gone_at.is_not(None))
    active = (
        select(TrainingJob.user_id, func.count().label("jobs"))
        # A run that a Reporter sends here needs no machine.
        .where(TrainingJob.status.in_(ACTIVE), TrainingJob.kind != "run", same_sort)
        .group_by(TrainingJob.user_id)
        .subquery()
    )
    chosen = (
        select(TrainingJob.id)
        .outerjoin(active, active.c.user_id == TrainingJob.user_id)
        .outerjoin(QueueTurn, QueueTurn.user_id == TrainingJob.user_id)
        .where(*conditions, ~is_gone)
        .order_by(
            func.coalesce(active.c.jobs, 0),
            QueueTurn.claimed_at.asc().nulls_first(),
            TrainingJob.queued_at,
            TrainingJob.id,
        )
        .limit(1)
        .with_for_update(of=TrainingJob, skip_locked=True)
        .scalar_subquery()
    )
    claimed: TrainingJob | None = await session.scalar(
        update(TrainingJob)
        .where(TrainingJob.id == chosen)
        .values(
            lease_token=uuid4(),
            lease_expires=database_time(LEASE),
            worker=claimant.worker,
            machine=claimant.machine,
        )
        .returning(TrainingJob)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    if claimed is not None and claimed.status == "queued":
        claimed.status = "provisioning"
        claimed.attempt += 1
        await _note_turn(session, claimed.user_id)
    return claimed


async def _note_turn(session: AsyncSession, user_id: UUID) -> None:
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    statement = (sqlite_insert if is_sqlite else postgresql_insert)(QueueTurn)
    await session.execute(
        statement.values(user_id=user_id, claimed_at=database_time()).on_conflict_do_update(
            index_elements=[QueueTurn.user_id], set_={"claimed_at": database_time()}
        )
    )


async def lease_holders(session: AsyncSession, machine: str) -> set[str]:
    """The workers that hold leases on the jobs of a machine."""
    names = await session.scalars(
        select(TrainingJob.worker)
        .where(TrainingJob.machine == machine, TrainingJob.lease_expires > database_time())
        .distinct()
    )
    return {name for name in names if name is not None}


async def expire_leases(session: AsyncSession, machine: str, *, workers: Collection[str]) -> None:
    """End the leases of workers that are known to be gone, so that no job waits for them to expire."""
    await session.execute(
        update(TrainingJob)
        .where(TrainingJob.machine == machine, TrainingJob.worker.in_(workers))
        .values(lease_expires=database_time())
        .execution_options(synchronize_session=False)
    )


async def renew(session: AsyncSession, job_id: UUID, token: UUID) -> bool:
    """Renew the lease; returns whether it is still held."""
    renewed = await session.execute(
        update(TrainingJob)
        .where(TrainingJob.id == job_id, TrainingJob.lease_token == token)
        .values(lease_expires=database_time(LEASE))
        .returning(TrainingJob.id)
        .execution_options(synchronize_session=False)
    )
    return renewed.one_or_none() is not None


async def holding(session: AsyncSession, job_id: UUID, token: UUID) -> TrainingJob:
    """The job's row, locked, for a writer that still holds the lease."""
    job = await session.scalar(
        select(TrainingJob)
        .where(TrainingJob.id == job_id, TrainingJob.lease_token == token)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if job is None:
        raise LeaseLost(f"job {job_id}")
    return job


def release(job: TrainingJob) -> None:
    """Release the lease at the end of an attempt."""
    job.lease_token = None
    job.lease_expires = None
    job.worker = None
