"""Takes an offer: looks up its price again, and whether this person can have it now."""

from typing import Any

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import Constraints, Need, Offer, PriceTable, Span, offers
from gpubloom.providers import registry
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.clock import now
from gpubloom.server.jobs.schemas import OfferTaken
from gpubloom.server.problems import InvalidInput
from gpubloom.server.rentals.connections import storage_state
from gpubloom.server.rentals.credentials import find_sealed
from gpubloom.server.rentals.price_book import PriceBook
from gpubloom.server.settings import Settings


class OfferService:
    """One per server. What it returns is stored as a job's `offer`; its `target` is the service that is
    called, which for the clouds behind SkyPilot is SkyPilot."""

    def __init__(self, settings: Settings, prices: PriceBook) -> None:
        self._settings, self._book = settings, prices

    async def take(
        self,
        session: AsyncSession,
        principal: Principal,
        offer: OfferTaken,
        *,
        estimate: Span | None = None,
    ) -> dict[str, Any]:
        """The offer that a job's row keeps. InvalidInput: this offer cannot be taken, and why."""
        prices = await self._book.current(session)
        facts = prices.providers.get(offer.provider)
        if facts is None or offer.provider == "local":
            raise InvalidInput.for_field(
                "offer.provider", f"Unknown provider {offer.provider!r}.", code="unknown_provider"
            )
        target = facts.through or offer.provider
        await self._check_target(session, principal, target)
        found = _find(offer, prices)
        if found is None:
            raise InvalidInput.for_field(
                "offer",
                f"{facts.title} no longer offers {offer.gpus}× {offer.gpu} with these options. Reload "
                "the offers.",
                code="offer_gone",
            )
        return {
            "target": target,
            "provider": offer.provider,
            "title": facts.title,
            "gpu": found.gpu,
            "gpus": found.gpus,
            "memory_gb": found.memory_gb,
            "region": offer.region,
            "kind": found.kind,
            "hourly": round(found.hourly.likely, 6),
            "billing": facts.billing,
            "minimum_seconds": 0.0,
            "start_up_seconds": facts.start_up_seconds.likely,
            "estimate": None
            if estimate is None
            else {"low": estimate.low, "likely": estimate.likely, "high": estimate.high},
        }

    async def _check_target(self, session: AsyncSession, principal: Principal, target: str) -> None:
        storage = storage_state(self._settings)
        if not storage.ready:
            raise InvalidInput.for_field("offer", str(storage.reason), code="no_bucket")
        if target not in registry.provider_names():
            raise InvalidInput.for_field(
                "offer.provider", f"GPU Bloom cannot start jobs at {target}.", code="unknown_provider"
            )
        # In a thread: a service's own library may take a while to import.
        kind = await anyio.to_thread.run_sync(registry.provider_spec, target)
        unattended = kind.capabilities.runs_unattended
        reason = kind.why_not() or (None if unattended.can else unattended.reason)
        if reason is not None:
            raise InvalidInput.for_field("offer.provider", reason, code="provider_unavailable")
        if await find_sealed(session, principal.id, target) is None:
            raise InvalidInput.for_field(
                "offer.provider",
                f"{kind.title} is not connected. Enter your credentials under Providers first.",
                code="not_connected",
            )


def _find(wanted: OfferTaken, prices: PriceTable) -> Offer | None:
    """The offer as it is made now; the smallest need that there is, so that only the price counts."""
    need = Need(Span.of(0.0), Span.of(1.0), "T4", gpus=wanted.gpus)
    region = wanted.region
    asked = Constraints(
        providers=frozenset({wanted.provider}),
        engines=frozenset(registry.provider_names()),
        gpus=frozenset({wanted.gpu}),
        region=region if region in {"us", "eu", "asia"} else None,
    )
    made = offers(need, prices=prices, now=now(), constraints=asked).offers
    return next(
        (
            offer
            for offer in made
            if (offer.gpus, offer.kind) == (wanted.gpus, wanted.kind)
            and (region is None or offer.region in {None, region})
        ),
        None,
    )
