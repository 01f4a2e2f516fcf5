"""The machines that have workers: which are alive, which are gone, and what that means for a job.

A machine is gone when an operator says so (`bloom server machines forget`), or when it was silent for
BLOOM_MACHINE_TIMEOUT_MINUTES and none of its leases is held. No worker can carry out a command for a job on
such a machine. `gone_at` stays until the machine comes back and has stopped what it ran: a job is taken from
a machine once, and the machine learns of it (docs/jobs.md, Machines that are gone).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.clock import now
from gpubloom.server.db.clock import database_time
from gpubloom.server.jobs.lease import release
from gpubloom.server.jobs.states import ACTIVE, after
from gpubloom.server.jobs.tables import Machine, TrainingJob

GONE = "machine_gone"


async def note_machine(session: AsyncSession, name: str) -> None:
    """Store that a machine has reported now."""
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    await session.execute(
        insert(Machine)
        .values(name=name, last_seen_at=database_time())
        .on_conflict_do_update(index_elements=[Machine.name], set_={Machine.last_seen_at: database_time()})
    )


def lease_ran_out() -> ColumnElement[bool]:
    """Whether no worker holds the job."""
    return or_(TrainingJob.lease_expires.is_(None), TrainingJob.lease_expires < database_time())


def silent_machines(silent_for: timedelta) -> Select[Machine]:
    """Machines with jobs that were silent for this long and are not marked as gone yet."""
    here = TrainingJob.machine == Machine.name
    return select(Machine).where(
        Machine.gone_at.is_(None),
        Machine.last_seen_at < database_time(-silent_for),
        exists().where(here, or_(TrainingJob.status.in_(ACTIVE), TrainingJob.status == "queued")),
        ~exists().where(here, TrainingJob.lease_expires > database_time()),
    )


async def is_lost(session: AsyncSession, job: TrainingJob, silent_for: timedelta) -> bool:
    """Whether no worker is left to follow a running job, as far as the database knows."""
    if job.status not in ACTIVE:
        return False
    gone = or_(Machine.gone_at.is_not(None), Machine.last_seen_at < database_time(-silent_for))
    statement = select(
        exists().where(TrainingJob.id == job.id, lease_ran_out(), Machine.name == TrainingJob.machine, gone)
    )
    return bool(await session.scalar(statement))


def let_go(job: TrainingJob) -> None:
    """Take a job from a machine that is gone: what was asked of it is done, or it waits for another machine.

    A job on a rented instance goes on there: only its lease is given up.
    """
    if job.status == "cancelling":
        job.status = after("stop", job.status)
        job.end_time = now()
    elif job.target == "local":
        job.status = after("stop" if job.status == "pausing" else "retry", job.status)
    release(job)


def gone_sentence(machine: Machine) -> str:
    """A sentence that names the machine and when it last reported."""
    return (
        f"Machine {machine.name} is gone. The server last heard from it at {_minute(machine.last_seen_at)}."
    )


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


async def list_machines(session: AsyncSession) -> Sequence[tuple[Machine, int]]:
    """Every machine that has a name, and how many jobs that have not ended lie on it."""
    waiting = or_(TrainingJob.status.in_(ACTIVE), TrainingJob.status == "queued")
    rows = await session.execute(
        select(Machine, func.count(TrainingJob.id))
        .outerjoin(TrainingJob, and_(TrainingJob.machine == Machine.name, waiting))
        .group_by(Machine.name)
        .order_by(Machine.last_seen_at.desc())
    )
    return [(machine, count) for machine, count in rows]
