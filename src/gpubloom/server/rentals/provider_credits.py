"""Remaining credits at providers. A person states an amount; what jobs have cost there since is subtracted.

No provider is asked: few of them tell their credits to an API key. What a person buys there in other ways is
not known here, so the amount can be stated anew at any time.
"""

import math
from datetime import UTC, date, datetime, time
from uuid import UUID

from sqlalchemy import delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import PriceTable
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.rentals.metering import cost_since
from gpubloom.server.rentals.schemas import CreditIn, CreditOut, Credits, SellerOut
from gpubloom.server.rentals.tables import ProviderCredit, Rental

# This machine sells nothing; what "another cloud" stands for differs from offer to offer.
_NOT_SELLERS = frozenset({"local", "skypilot"})


def sellers(prices: PriceTable) -> dict[str, str]:
    """The titles of the providers where credits can be, by name."""
    return {name: facts.title for name, facts in prices.providers.items() if name not in _NOT_SELLERS}


async def list_credits(session: AsyncSession, principal: Principal, prices: PriceTable) -> Credits:
    rows = await session.scalars(
        select(ProviderCredit).where(ProviderCredit.user_id == principal.id).order_by(ProviderCredit.provider)
    )
    titles, at = sellers(prices), now()
    return Credits(
        items=[await _credit_out(session, row, titles, at) for row in rows.all()],
        providers=[SellerOut(name=name, title=title) for name, title in titles.items()],
    )


async def remaining_credits(session: AsyncSession, user_id: UUID) -> dict[str, float]:
    """What is left of each stated credit, by provider name; for the ranking of offers."""
    rows = await session.scalars(select(ProviderCredit).where(ProviderCredit.user_id == user_id))
    at = now()
    return {row.provider: max(0.0, row.amount - await _spent(session, row, at)) for row in rows.all()}


async def state_credit(
    session: AsyncSession, principal: Principal, provider: str, stated: CreditIn, prices: PriceTable
) -> CreditOut:
    """In place of what was stated earlier. NotFound: no such provider. InvalidInput: a day to come."""
    titles, at = sellers(prices), now()
    if provider not in titles:
        raise NotFound(f"Unknown provider {provider!r}.", code="unknown_provider")
    row = await session.merge(
        ProviderCredit(
            user_id=principal.id,
            provider=provider,
            amount=stated.amount,
            stated_at=_moment(stated.as_of, at),
        )
    )
    record(session, principal.actor, "provider_credit.stated", f"provider:{provider}")
    return await _credit_out(session, row, titles, at)


async def remove_credit(session: AsyncSession, principal: Principal, provider: str) -> None:
    removed = await session.scalar(
        delete(ProviderCredit)
        .where(ProviderCredit.user_id == principal.id, ProviderCredit.provider == provider)
        .returning(ProviderCredit.provider)
    )
    if removed is None:
        raise NotFound("No credit is stated for this provider.", code="no_credit")
    record(session, principal.actor, "provider_credit.removed", f"provider:{provider}")


def _moment(as_of: date | None, at: datetime) -> datetime:
    """From when on costs are subtracted. Of an earlier day all are: rather too little left than too much."""
    today = at.astimezone(UTC).date()
    if as_of is None or as_of == today:
        return at
    if as_of > today:
        raise InvalidInput.for_field(
            "as_of", "This day has not come yet. Enter today or an earlier day.", code="day_in_future"
        )
    return datetime.combine(as_of, time(), tzinfo=UTC)


async def _spent(session: AsyncSession, row: ProviderCredit, at: datetime) -> float:
    seller = func.coalesce(Rental.seller, Rental.provider)
    rentals = await session.scalars(
        select(Rental).where(
            Rental.user_id == row.user_id,
            seller == row.provider,
            Rental.cost > 0,
            or_(Rental.billed_to.is_(None), Rental.billed_to >= row.stated_at),
        )
    )
    return math.fsum(cost_since(rental, row.stated_at, at) for rental in rentals)


async def _credit_out(
    session: AsyncSession, row: ProviderCredit, titles: dict[str, str], at: datetime
) -> CreditOut:
    spent = await _spent(session, row, at)
    return CreditOut(
        provider=row.provider,
        title=titles.get(row.provider, row.provider),
        amount=row.amount,
        stated_at=row.stated_at,
        spent=spent,
        remaining=max(0.0, row.amount - spent),
    )
