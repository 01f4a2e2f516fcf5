"""Jobs whose machine is gone: released, taken over by a machine that can read their checkpoints, or failed.
Jobs of a disabled account: cancelled.

Every function is one transaction's work. Who may take a job over looks at files; that happens before, in the
worker (`worker.lost_machines`).
"""

import asyncio
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.clock import now
from gpubloom.server.db.clock import database_time
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.events import announce, lock_job
from gpubloom.server.jobs.machines import GONE, gone_sentence, is_lost, lease_ran_out, let_go, silent_machines
from gpubloom.server.jobs.states import ACTIVE, ENDED, Status, after
from gpubloom.server.jobs.summary import with_waiting
from gpubloom.server.jobs.tables import Machine, TrainingJob

log = structlog.get_logger("bloom")

SETTLE_SECONDS = 10.0
_STOPPABLE: tuple[Status, ...] = ("queued", "provisioning", "running", "pausing")


async def forget_machine(
    session: AsyncSession, name: str, *, silent_for: timedelta | None = None
) -> int | None:
    """Call a machine gone and release its jobs; says how many. None: it is gone already, or there is none.

    `silent_for`: only if it is still so that nothing was heard of it for this long.
    """
    chosen = select(Machine.name).where(Machine.name == name, Machine.gone_at.is_(None))
    if silent_for is not None:
        chosen = silent_machines(silent_for).with_only_columns(Machine.name).where(Machine.name == name)
    machine: Machine | None = await session.scalar(
        update(Machine)
        .where(Machine.name.in_(chosen))
        .values(gone_at=database_time())
        .returning(Machine)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    if machine is None:
        return None
    jobs = await session.scalars(
        select(TrainingJob)
        .where(TrainingJob.machine == name, TrainingJob.status.in_(ACTIVE))
        .order_by(TrainingJob.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    released = jobs.all()
    for job in released:
        let_go(job)
        if job.status == "queued":
            job.summary = with_waiting(job.summary, gone_sentence(machine))
        await announce(session, job)
    record(
        session,
        SYSTEM,
        "machine.gone",
        f"machine:{name}",
        jobs=len(released),
        by="timeout" if silent_for is not None else "operator",
    )
    return len(released)


async def lost_jobs(session: AsyncSession, machine: str) -> list[TrainingJob]:
    """Jobs of other machines that are gone, which wait for a machine that can continue them."""
    rows = await session.scalars(
        select(TrainingJob)
        .join(Machine, Machine.name == TrainingJob.machine)
        .where(Machine.gone_at.is_not(None), Machine.name != machine, lease_ran_out())
        # A rented instance keeps running: its job is not queued again.
        .where(
            (TrainingJob.status == "queued")
            | (TrainingJob.status.in_(ACTIVE) & (TrainingJob.target != "local"))
        )
        .order_by(TrainingJob.queued_at, TrainingJob.id)
        .limit(100)
    )
    return list(rows)


async def take_over(
    session: AsyncSession, job_id: UUID, lost: str, machine: str | None, *, anew: bool
) -> bool:
    """Move a lost job to a machine; None: to any. Returns whether the job was still lost."""
    if (job := await _still_lost(session, job_id, lost)) is None:
        return False
    if machine is None and job.status != "queued":
        job.status = after("stop" if job.status == "pausing" else "retry", job.status)
    if anew:
        # The events of this attempt cannot be read any longer; the next attempt writes files of its own.
        job.cursor = {}
    job.machine = machine
    job.summary = with_waiting(job.summary, None)
    await announce(session, job)
    return True


async def fail_lost(session: AsyncSession, job_id: UUID, lost: str) -> bool:
    """Fail a lost job that no machine can continue. Returns whether the job was still lost."""
    if (job := await _still_lost(session, job_id, lost)) is None:
        return False
    machine = await session.get_one(Machine, lost)
    if job.status == "pausing":
        job.status = after("stop", job.status)
    else:
        job.status = after("fail", job.status)
        job.end_time = now()
    job.error_code = GONE
    job.error_message = (
        f"{gone_sentence(machine)} No other machine can read the files of this job. Start the worker "
        "of that machine again and resume the job, or start a new job."
    )
    job.summary = with_waiting(job.summary, None)
    await announce(session, job)
    return True


async def _still_lost(session: AsyncSession, job_id: UUID, lost: str) -> TrainingJob | None:
    job = await lock_job(session, job_id)
    gone = await session.scalar(select(Machine.gone_at).where(Machine.name == lost))
    if job is None or gone is None or job.machine != lost or job.lease_token is not None:
        return None
    return job if job.status == "queued" or job.status in ACTIVE else None


async def keep_settling(database: Database, silent_for: timedelta) -> None:
    """Runs until cancelled. Needed because without any worker nothing else ends cancelled jobs."""
    while True:
        await asyncio.sleep(SETTLE_SECONDS)
        try:
            await cancel_of_disabled(database)
            await settle_cancelled(database, silent_for)
        except (SQLAlchemyError, OSError) as problem:
            log.warning(
                "waiting for the database before ending cancelled jobs", reason=type(problem).__name__
            )
        except Exception as problem:
            # One job must not keep all others from ending.
            log.error("ending cancelled jobs failed", exc_info=problem)


async def cancel_of_disabled(database: Database) -> int:
    """Cancel what disabled accounts run or have in the queue; returns how many jobs.

    Nobody else could: jobs are seen by their owner alone, and rented machines cost money. Paused jobs stay as
    they are, and sent runs run elsewhere.
    """
    running = (
        select(TrainingJob.id)
        .join(User, User.id == TrainingJob.user_id)
        .where(User.disabled, TrainingJob.kind != "run", TrainingJob.status.in_(_STOPPABLE))
    )
    async with database.read() as session:
        # A read first: an idle server takes no write lock.
        found = list(await session.scalars(running))
    cancelled = 0
    for job_id in found:
        async with database.write() as session:
            job = await lock_job(session, job_id)
            if job is None or job.status not in _STOPPABLE:
                continue
            job.status, job.want = after("cancel", job.status), "cancel"
            job.control_version += 1
            job.error_code = "account_disabled"
            job.error_message = "An admin disabled the account of the job's owner."
            if job.status in ENDED:
                job.end_time = now()
            record(
                session,
                SYSTEM,
                "training_job.cancel",
                f"training_job:{job.id}",
                job.project_id,
                name=job.name,
                kind=job.kind,
                reason=job.error_code,
            )
            await announce(session, job)
            cancelled += 1
    return cancelled


async def settle_cancelled(database: Database, silent_for: timedelta) -> int:
    """End jobs that were cancelled and whose machine is gone; returns how many."""
    async with database.read() as session:
        waiting = await session.scalars(
            select(TrainingJob).where(TrainingJob.status == "cancelling", lease_ran_out())
        )
        lost = [job.id for job in waiting if await is_lost(session, job, silent_for)]
    settled = 0
    for job_id in lost:
        async with database.write() as session:
            job = await lock_job(session, job_id)
            if job is None or job.status != "cancelling" or not await is_lost(session, job, silent_for):
                continue
            let_go(job)
            await announce(session, job)
            settled += 1
    return settled
