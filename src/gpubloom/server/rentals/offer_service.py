"""Takes an offer: looks up its price again, and whether this person can have it now."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.offers import in_force
from gpubloom.providers import registry
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.clock import now
from gpubloom.server.jobs.new_job_schemas import FailoverPreference, OfferTaken
from gpubloom.server.problems import InvalidInput
from gpubloom.server.rentals.credentials import find_sealed
from gpubloom.server.rentals.price_book import PriceBook, find_offer
from gpubloom.server.rentals.store_choice import no_store, read_stores
from gpubloom.server.settings import Settings

MOST_ALTERNATIVES = 3


class OfferService:
    """One per server. What it returns is stored as a job's `offer`; its `target` is the service that is
    called, which for the clouds behind SkyPilot is SkyPilot."""

    def __init__(self, settings: Settings, prices: PriceBook) -> None:
        self._settings, self._book = settings, prices

    async def take(
        self, session: AsyncSession, principal: Principal, offer: OfferTaken, *, starts: bool = True
    ) -> dict[str, Any]:
        """The offer that a job's row keeps. InvalidInput: this offer cannot be taken, and why.

        `starts`: False for a quote, which needs no store.
        """
        prices = await self._book.current(session)
        facts = prices.providers.get(offer.provider)
        if facts is None or offer.provider == "local":
            raise InvalidInput.for_field(
                "offer.provider", f"Unknown provider {offer.provider!r}.", code="unknown_provider"
            )
        target = facts.through or offer.provider
        store = (await read_stores(session, self._settings)).best(target)
        if starts and store is None:
            raise InvalidInput.for_field("offer", no_store(facts.title), code="no_store")
        await self._check_target(session, principal, target)
        found = find_offer(offer, prices, now())
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
            "store": None if store is None else store.name,
            "start_up_seconds": facts.start_up_seconds.likely,
            # Known when the job is planned.
            "estimate": None,
        }

    async def alternatives(
        self,
        session: AsyncSession,
        principal: Principal,
        offer: Mapping[str, Any],
        asked: Sequence[OfferTaken] | None,
        preference: FailoverPreference,
        budget: float | None,
    ) -> list[dict[str, Any]]:
        """Where a job goes when its offer has no machine, in this order.

        `asked`: the person's own order. None: the same GPU at other connected providers, by `preference`;
        offers whose expected cost is above the budget are left out.
        """
        if asked is not None:
            taken = [await self.take(session, principal, each) for each in asked]
            if small := next((each for each in taken if each["memory_gb"] < offer["memory_gb"]), None):
                raise InvalidInput.for_field(
                    "failover",
                    f"{small['gpu']} at {small['title']} has less memory than {offer['gpu']}: the job may "
                    "not fit. Choose a GPU with at least as much memory.",
                    code="failover_too_small",
                )
        else:
            taken = await self._same_gpu(session, principal, offer, preference)
        estimate, hourly = offer.get("estimate"), float(offer["hourly"])
        for each in taken:
            if estimate is not None and hourly > 0:
                # About as long as on the chosen machine.
                factor = each["hourly"] / hourly
                each["estimate"] = {name: round(value * factor, 4) for name, value in estimate.items()}
        others = [each for each in taken if not _is_same(each, offer)]
        if asked is not None:
            return others
        most = math.inf if budget is None else budget
        return [each for each in others if _costs(each) <= most][:MOST_ALTERNATIVES]

    async def _same_gpu(
        self,
        session: AsyncSession,
        principal: Principal,
        offer: Mapping[str, Any],
        preference: FailoverPreference,
    ) -> list[dict[str, Any]]:
        prices = await self._book.current(session)
        # SkyPilot stands for all clouds behind it.
        known = {*prices.providers, *registry.provider_names()}
        if unknown := sorted(set(preference.providers) - known):
            raise InvalidInput.for_field(
                "failover_by.providers", f"Unknown provider {unknown[0]!r}.", code="unknown_provider"
            )
        kinds = {"on_demand", "per_second", offer["kind"]}
        rows = {
            (row.provider, row.kind)
            for row in in_force(prices.rows, now())
            if row.gpu == offer["gpu"]
            and row.kind in kinds
            and row.provider not in {offer["provider"], "local"}
            and (
                not preference.providers
                or {row.provider, prices.providers[row.provider].through} & {*preference.providers}
            )
        }
        found = []
        for provider, kind in sorted(rows):
            wanted = OfferTaken(provider=provider, gpu=offer["gpu"], gpus=offer["gpus"], kind=kind)
            try:
                found.append(await self.take(session, principal, wanted))
            except InvalidInput:
                # Not connected, or not offered with so many GPUs.
                continue

        def rank(each: dict[str, Any]) -> tuple[float, float, str]:
            facts = prices.providers[each["provider"]]
            wait = facts.queue_seconds.likely + facts.start_up_seconds.likely
            return (wait if preference.order == "time" else 0.0, each["hourly"], each["provider"])

        return sorted(found, key=rank)

    async def _check_target(self, session: AsyncSession, principal: Principal, target: str) -> None:
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


def _costs(offer: Mapping[str, Any]) -> float:
    """The expected cost; 0 when the duration of the job is unknown."""
    return float((offer.get("estimate") or {}).get("likely", 0.0))


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    names = ("provider", "gpu", "gpus", "kind", "region")
    return all(one.get(name) == other.get(name) for name in names)
