"""The prices that offers are made from: the shipped table, with what connected services said lately.

Lists of prices are the same for everybody: whoever is connected to a service brings its newest ones to all.
The worker asks, together with its look for forgotten machines; making an offer never waits for a service.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import structlog
from fastapi import Depends, Request
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import Constraints, Need, Offer, PriceRow, PriceTable, Span, offers
from gpubloom.offers.prices import PricesProblem
from gpubloom.providers import registry
from gpubloom.providers.cloud import CloudProvider
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database, ReadSession
from gpubloom.server.jobs.new_job_schemas import OfferTaken
from gpubloom.server.rentals.tables import LivePrices

log = structlog.get_logger("bloom")

_READ_AGAIN_AFTER = timedelta(hours=1)
# What was free or sold out a day ago says nothing; the price table's own dates take over.
_FORGOTTEN_AFTER = timedelta(days=1)


async def read_prices(database: Database, provider: CloudProvider) -> None:
    """Ask a provider for its prices, unless that was done recently. Raises its Faults."""
    if not provider.capabilities.live_prices.can:
        return
    async with database.read() as session:
        known = await session.get(LivePrices, provider.name)
    if known is not None and now() - known.read_at < _READ_AGAIN_AFTER:
        return
    rows = await provider.prices()
    if not rows:
        return
    async with database.write() as session:
        await session.merge(
            LivePrices(
                provider=provider.name, rows=[row.model_dump(mode="json") for row in rows], read_at=now()
            )
        )


class PriceBook:
    """One per server; made anew only when a service has said something new."""

    def __init__(self, shipped: PriceTable) -> None:
        self._shipped = self._made = shipped
        self._from: list[tuple[str, datetime]] = []

    async def current(self, session: AsyncSession) -> PriceTable:
        since = now() - _FORGOTTEN_AFTER
        stamps = select(LivePrices.provider, LivePrices.read_at).where(LivePrices.read_at > since)
        found = [(name, at) for name, at in await session.execute(stamps.order_by(LivePrices.provider))]
        if found != self._from:
            live = await session.scalars(select(LivePrices).where(LivePrices.read_at > since))
            self._made = self._with([row for each in live for row in each.rows])
            self._from = found
        return self._made

    def _with(self, rows: list[dict[str, object]]) -> PriceTable:
        # SkyPilot also lists clouds that the price table does not describe.
        known = [row for row in rows if row.get("provider") in self._shipped.providers]
        try:
            return self._shipped.with_rows([PriceRow.model_validate(row) for row in known])
        except (ValidationError, PricesProblem) as problem:
            # Stored by another version of ours.
            log.warning("ignored the live prices of providers", reason=str(problem))
            return self._shipped


def current_rate(offer: Mapping[str, Any], prices: PriceTable, at: datetime) -> float | None:
    """Dollars an hour that the machine of a taken offer costs now; None: it is not in the list any more."""
    wanted = OfferTaken.model_validate({name: offer.get(name) for name in OfferTaken.model_fields})
    found = find_offer(wanted, prices, at)
    return None if found is None else round(found.hourly.likely, 6)


def find_offer(wanted: OfferTaken, prices: PriceTable, at: datetime) -> Offer | None:
    """The offer as it is made now; the smallest need that there is, so that only the price counts."""
    need = Need(Span.of(0.0), Span.of(1.0), "T4", gpus=wanted.gpus)
    region = wanted.region
    asked = Constraints(
        providers=frozenset({wanted.provider}),
        engines=frozenset(registry.provider_names()),
        gpus=frozenset({wanted.gpu}),
        region=region if region in {"us", "eu", "asia"} else None,
    )
    made = offers(need, prices=prices, now=at, constraints=asked).offers
    return next(
        (
            offer
            for offer in made
            if (offer.gpus, offer.kind) == (wanted.gpus, wanted.kind)
            and (region is None or offer.region in {None, region})
        ),
        None,
    )


async def _prices_of(request: Request, session: ReadSession) -> PriceTable:
    book = cast("PriceBook", request.app.state.prices)
    return await book.current(session)


CurrentPrices = Annotated[PriceTable, Depends(_prices_of)]
