"""The addresses of prices and offers."""

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request

from gpubloom.offers import Need, PriceTable, offers
from gpubloom.offers.prices import STALE_AFTER
from gpubloom.server.clock import now
from gpubloom.server.db.session import ReadSession
from gpubloom.server.offers.schemas import (
    AskForOffers,
    ExcludedOut,
    NeedOut,
    OfferOut,
    OffersOut,
    PriceOut,
    PricesOut,
    ProviderOut,
)
from gpubloom.server.problems import InvalidInput
from gpubloom.server.rentals.price_book import PriceBook

router = APIRouter(tags=["offers"])


async def _prices_of(request: Request, session: ReadSession) -> PriceTable:
    book = cast("PriceBook", request.app.state.prices)
    return await book.current(session)


CurrentPrices = Annotated[PriceTable, Depends(_prices_of)]
_SHOWN = ProviderOut.model_fields.keys() - {"name"}


@router.get("/prices")
async def list_prices(prices: CurrentPrices) -> PricesOut:
    """All prices that offers are made from, with where and when they were read."""
    at = now()
    return PricesOut(
        prices=[
            PriceOut(
                **row.model_dump(exclude={"confidence", "availability"}),
                assumed=row.assumed,
                stale=row.stale(at),
            )
            for row in prices.rows
        ],
        providers=[
            ProviderOut.model_validate({**facts.model_dump(include=_SHOWN), "name": name})
            for name, facts in prices.providers.items()
        ],
        stale_after_days=STALE_AFTER.days,
    )


@router.post("/offers")
async def make_offers(body: AskForOffers, prices: CurrentPrices) -> OffersOut:
    """Where a job could run and what that would cost; nothing is started or stored."""
    need = _need(body)
    found = offers(need, prices=prices, now=now(), constraints=body.constraints.constraints())
    return OffersOut(
        need=NeedOut.model_validate(need),
        offers=[OfferOut.model_validate(offer) for offer in found.offers],
        excluded=[ExcludedOut.model_validate(each) for each in found.excluded],
        archetype=found.choice.archetype if found.choice else None,
        usual=found.choice.usual if found.choice else None,
    )


def _need(body: AskForOffers) -> Need:
    field = "needs" if body.requirements is None else "requirements"
    try:
        if body.needs is not None and body.requirements is None:
            return body.needs.need()
        if body.requirements is not None and body.needs is None:
            return Need.from_requirements(body.requirements)
    except ValueError as problem:
        raise InvalidInput.for_field(field, str(problem)) from None
    raise InvalidInput.for_field("needs", "Give either requirements or needs.")
