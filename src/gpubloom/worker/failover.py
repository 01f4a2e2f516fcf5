"""A job whose offer has no machine, or lost it, goes on with its next offer, within the same budget.

An offer that had no machine, or whose machine was taken away, goes to the end of the list: it may have one
later. One that refused the job, or whose machine never reported, is dropped. Every attempt has a rental row
of its own, which is the chain that the job's page shows.
"""

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.rentals.tables import Rental

# An offer that had no machine is asked again after this; until then the job waits where it is.
ASKED_AGAIN_AFTER = timedelta(minutes=5)
# Faults after which the same offer may work later.
_MAY_WORK_LATER = {"no_capacity", "lost"}
# Faults after which another offer may work. Others, such as a missing secret, would meet the job everywhere.
_ANOTHER_OFFER_HELPS = {
    *("quota", "bad_credentials", "inactive_account", "refused", "agent_silent", "gone"),
    *_MAY_WORK_LATER,
}


def has_next_offer(job: TrainingJob, at: datetime) -> bool:
    """Whether there is an offer that was not refused a moment ago."""
    following = job.failover or []
    if not following:
        return False
    refused_at = following[0].get("refused_at")
    return refused_at is None or at - datetime.fromisoformat(refused_at) >= ASKED_AGAIN_AFTER


def take_next_offer(job: TrainingJob, kind: str, at: datetime) -> bool:
    """Put the next offer in the place of the present one; False: there is none, or none would help."""
    if kind not in _ANOTHER_OFFER_HELPS or job.offer is None or not has_next_offer(job, at):
        return False
    following = list(job.failover or [])
    taken = {name: value for name, value in following.pop(0).items() if name != "refused_at"}
    if kind in _MAY_WORK_LATER:
        following.append({**job.offer, "refused_at": at.isoformat()})
    job.offer, job.target, job.failover = taken, str(taken["target"]), following
    return True


async def was_taken_away(session: AsyncSession, job: TrainingJob) -> bool:
    """Whether the provider took the machine of the present attempt away."""
    found = select(Rental.state).where(Rental.job_id == job.id, Rental.attempt == job.attempt)
    return await session.scalar(found) == "lost"
