"""What a rental costs: its billed time, by the service's clock where it has one, times its rate."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import Attempt, Meter, Rate
from gpubloom.providers.cloud import Instance
from gpubloom.server.clock import now
from gpubloom.server.rentals.tables import Rental

# The answer of a database takes a moment on a busy machine: less says nothing about a clock.
_CLOCKS_AGREE_WITHIN = timedelta(seconds=5)
# More is no moment by anybody's clock.
_CLOCKS_DIFFER_BY = timedelta(days=365)
# No machine was rented before.
_FIRST_MACHINE = datetime(2000, 1, 1, tzinfo=UTC)


def by_database_clock(instance: Instance, at: datetime) -> Instance:
    """An instance whose times are by this process's clock, by the database's, which says `at` now."""
    instance = replace(
        instance, billed_from=_known(instance.billed_from), billed_to=_known(instance.billed_to)
    )
    ahead = now() - at
    if abs(ahead) < _CLOCKS_AGREE_WITHIN:
        return instance
    return replace(
        instance,
        billed_from=None if instance.billed_from is None else instance.billed_from - ahead,
        billed_to=None if instance.billed_to is None else instance.billed_to - ahead,
    )


def _known(moment: datetime | None) -> datetime | None:
    """Some services write 0001-01-01 or 9999-12-31 for a moment that they do not know."""
    if moment is None or not _FIRST_MACHINE < moment < now() + _CLOCKS_DIFFER_BY:
        return None
    return moment


def note_instance(rental: Rental, instance: Instance, at: datetime) -> None:
    """Take over what a service said of its machine at a moment, and meter it."""
    rental.instance_id = instance.id or rental.instance_id
    rental.state = instance.state
    rental.detail = instance.detail
    rental.page = instance.page or rental.page
    rental.region = instance.region or rental.region
    if instance.hourly is not None and math.isfinite(instance.hourly) and instance.hourly >= 0:
        rental.hourly = instance.hourly
    if instance.billed_from is not None:
        rental.billed_from = min(instance.billed_from, at)
    elif rental.billed_from is None and instance.state == "running":
        rental.billed_from = at
    if instance.state in {"ended", "lost"}:
        rental.billed_to = min(instance.billed_to or rental.billed_to or at, at)
    else:
        rental.billed_to = None
    meter(rental, at)


def end_rental(rental: Rental, at: datetime, detail: str) -> None:
    """End a rental of which nothing runs and nothing more can be learned."""
    rental.state, rental.detail = "ended", detail
    if rental.billed_from is not None:
        rental.billed_to = rental.billed_to or at
    meter(rental, at)


def meter(rental: Rental, at: datetime) -> None:
    """Bring its cost up to a moment."""
    seconds = attempt_of(rental).seconds(at.timestamp()) if rental.billed_from is not None else 0.0
    rate = rate_of(rental)
    rental.billed_seconds, rental.cost = rate.billed_seconds(seconds), rate.cost(seconds)
    rental.metered_at = at


def cost_since(rental: Rental, moment: datetime, at: datetime) -> float:
    """What its billed time after a moment cost, as its share of the whole bill; `at`: now."""
    if rental.billed_from is None:
        return 0.0
    if rental.billed_from >= moment:
        return rental.cost
    # Its cost is known up to when it was metered, not up to now.
    end = rental.billed_to or rental.metered_at or at
    return rental.cost * max(0.0, (end - moment) / (end - rental.billed_from)) if end > moment else 0.0


def rate_of(rental: Rental) -> Rate:
    return Rate(rental.hourly, rental.billing, rental.minimum_seconds)


def attempt_of(rental: Rental) -> Attempt:
    """Of a rental whose bill has begun."""
    assert rental.billed_from is not None
    ended = None if rental.billed_to is None else rental.billed_to.timestamp()
    return Attempt(rental.provider, rate_of(rental), rental.billed_from.timestamp(), ended)


async def rentals_of(session: AsyncSession, job_id: UUID) -> list[Rental]:
    """A job's machines, in the order of its attempts."""
    rows = await session.scalars(select(Rental).where(Rental.job_id == job_id).order_by(Rental.attempt))
    return list(rows)


def meter_of(rentals: list[Rental]) -> Meter:
    """All of a job's machines whose bill has begun; one that is still billed comes last."""
    attempts = [attempt_of(rental) for rental in rentals if rental.billed_from is not None]
    return Meter(tuple(sorted(attempts, key=lambda attempt: attempt.ended is None)))
