"""Where a script job runs: on the server's machine or on a rented machine, and the reasons."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.errors import code_of
from gpubloom.offers import Constraints, Need, Offer, PriceTable, Span, is_named, offers
from gpubloom.plan import Gpu, Hardware
from gpubloom.providers.gpu_names import our_gpu_name
from gpubloom.providers.registry import provider_names, provider_spec
from gpubloom.scripts import Detected, Requirements
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.clock import now
from gpubloom.server.jobs.launch import TakesOffers
from gpubloom.server.jobs.new_job_schemas import OfferTaken
from gpubloom.server.ml_jobs.schemas import NewMlJob, Overrides
from gpubloom.server.problems import InvalidInput
from gpubloom.server.rentals.connections import credentials_of
from gpubloom.server.rentals.provider_credits import remaining_credits

_FREE = Span.of(0.0)
_GIGABYTE = 1 << 30
# Why nothing can be rented from a provider that the user has not set up.
_NOT_SET_UP = {"not_connected", "provider_unavailable"}


@dataclass(frozen=True)
class Placement:
    """`offer` is what a job's row keeps of a rented machine; None: this server's own, with so many GPUs."""

    offer: dict[str, Any] | None
    cost: Span
    reasons: tuple[str, ...] = ()
    gpus: int = 0

    @property
    def provider(self) -> str:
        return "local" if self.offer is None else str(self.offer["provider"])

    @property
    def target(self) -> str:
        return "local" if self.offer is None else str(self.offer.get("target") or self.offer["provider"])


@dataclass(frozen=True)
class PlacementRequest:
    """The job of a user, its requirements, and the machines and providers that could run it."""

    body: NewMlJob
    found: Requirements
    principal: Principal
    prices: PriceTable
    offer_service: TakesOffers
    machines: Sequence[Hardware] = field(default=())


def apply_overrides(found: Requirements, said: Overrides | None) -> Requirements:
    """Values that the user set replace detected ones and count as stated."""
    if said is None:
        return found
    values: dict[str, Any] = {
        name: Detected(value=value, confidence="stated", reason="Set by you.")
        for name, value in said.model_dump(
            exclude_none=True, exclude={"framework", "timeout_seconds"}
        ).items()
    }
    return found.model_copy(update=values)


async def decide(session: AsyncSession, request: PlacementRequest) -> Placement:
    """InvalidInput: it cannot run where it should, and what to do about it."""
    body = request.body
    if body.offer is not None:
        return await _take(session, request, body.offer.model_dump())
    if body.provider == "local":
        return _here(request)
    if body.provider is not None and body.provider not in request.prices.providers:
        known = ", ".join(sorted(request.prices.providers))
        raise InvalidInput.for_field(
            "provider",
            f"Unknown provider {body.provider!r}. Known providers: {known}.",
            code="unknown_provider",
        )
    needs_gpu = request.found.gpus.value > 0 or body.constraints.gpus
    if body.provider is None and (not needs_gpu or _machine_for(request) is not None):
        here = _here(request)
        return replace(here, reasons=("The server's machine can run this job at no cost.", *here.reasons))
    return await _best(session, request)


def _here(request: PlacementRequest) -> Placement:
    wanted = request.found.gpus.value
    machine = _machine_for(request)
    cautions = _cautions(request)
    if wanted == 0:
        return Placement(None, _FREE, ("The job needs no GPU.", *cautions))
    if machine is None:
        have = "no GPU" if not any(each.gpus for each in request.machines) else "no GPU that is large enough"
        sees_none = f"The server's machine has {have}. The script runs on the CPU."
        return Placement(None, _FREE, (sees_none, *cautions))
    gpus = min(wanted, len(machine.gpus))
    fewer = f" The job could use {wanted} GPUs on a larger machine." if gpus < wanted else ""
    gets = f"The job gets {gpus}× {machine.gpus[0].name} of the server's machine.{fewer}"
    return Placement(None, _FREE, (gets, *cautions), gpus)


def _cautions(request: PlacementRequest) -> Iterator[str]:
    """What may be missing on this server's machine, where nothing is installed and nothing fetched for it."""
    packages = request.body.packages
    needed = [each.value for each in request.found.packages] if packages is None else packages
    if missing := [name for name in needed if not _is_installed(name)]:
        yield (
            f"Not installed on the server's machine: {', '.join(missing)}. Install the missing "
            "packages there, or rent a machine."
        )
    if request.found.models and not request.body.network:
        names = ", ".join(each.value for each in request.found.models)
        yield (
            f"The script loads {names}. Without network access it cannot download them on the server's "
            "machine."
        )


def _is_installed(package: str) -> bool:
    """By its name on the package index; versions are the script's affair."""
    try:
        version(re.split(r"[^A-Za-z0-9._-]", package, maxsplit=1)[0])
    except (PackageNotFoundError, ValueError):
        return False
    return True


def _machine_for(request: PlacementRequest) -> Hardware | None:
    """A machine with a worker whose GPU holds the job."""
    memory = request.found.gpu_memory_gb.value * _GIGABYTE
    able = [
        machine
        for machine in request.machines
        if any(gpu.memory_bytes >= 0.9 * memory and _is_wanted(gpu, request) for gpu in machine.gpus)
    ]
    return able[0] if able else None


def _is_wanted(gpu: Gpu, request: PlacementRequest) -> bool:
    names = request.body.constraints.gpus if request.body.provider is None else []
    ours = our_gpu_name(gpu.name)
    return not names or any(is_named(ours, name) for name in names)


async def _best(session: AsyncSession, request: PlacementRequest) -> Placement:
    """The best offer that can be taken: those of services that are not connected cannot."""
    stated = await remaining_credits(session, request.principal.id)
    made = await anyio.to_thread.run_sync(_offers, request, request.body.provider, stated)
    able = [offer for offer in made if offer.unattended]
    may_stay = request.body.provider is None and not request.body.constraints.gpus
    if not able:
        if may_stay and not await credentials_of(session, request.principal.id):
            return _unrented(request)
        raise InvalidInput.for_field("provider", _without_offer(request), code="no_offer")
    refusals: dict[str, InvalidInput] = {}
    without_store: Placement | None = None
    for offer in able:
        if offer.provider in refusals:
            continue
        wanted = {name: getattr(offer, name) for name in OfferTaken.model_fields}
        try:
            placement = await _take(session, request, wanted, offer)
        except InvalidInput as refusal:
            refusals[offer.provider] = refusal
            continue
        if (placement.offer or {}).get("store") is None:
            # It can be quoted. Another provider may have a store of its own.
            without_store = without_store or placement
            continue
        skipped = tuple(f"Skipped {name}: {refusal.detail}" for name, refusal in refusals.items())
        return replace(placement, reasons=(*placement.reasons, *skipped))
    if without_store is not None:
        return without_store
    first = next(iter(refusals.values()))
    if request.body.provider is not None:
        raise first
    if may_stay and _codes(refusals.values()) <= _NOT_SET_UP:
        return _unrented(request)
    raise InvalidInput.for_field(
        "provider",
        f"{first.detail} Connect a provider under Providers, or choose the provider `local`.",
        code=first.errors[0].code if first.errors else first.code,
    )


def _unrented(request: PlacementRequest) -> Placement:
    here = _here(request)
    return replace(here, reasons=("No provider is connected, so no GPU can be rented.", *here.reasons))


def _without_offer(request: PlacementRequest) -> str:
    names = request.body.constraints.gpus
    known = sorted({row.gpu for row in request.prices.rows})
    if names and not any(is_named(gpu, name) for gpu in known for name in names):
        return f"No provider offers {' or '.join(names)}. Known GPUs: {', '.join(known)}."
    where = f"{request.body.provider} has" if request.body.provider else "There is"
    return (
        f"{where} no offer that can run this job unattended. "
        "The list of offers (bloom providers offers) shows the reasons."
    )


def _codes(refusals: Iterable[InvalidInput]) -> set[str]:
    return {error.code for refusal in refusals for error in refusal.errors}


async def _take(
    session: AsyncSession, request: PlacementRequest, wanted: dict[str, Any], offer: Offer | None = None
) -> Placement:
    taken = OfferTaken.model_validate(wanted)
    taken_offer = await request.offer_service.take(session, request.principal, taken, starts=False)
    if offer is None:
        stated = await remaining_credits(session, request.principal.id)
        made = await anyio.to_thread.run_sync(_offers, request, taken.provider, stated)
        same = [each for each in made if _is(each, taken)]
        offer = same[0] if same else None
    if offer is None:
        return Placement(
            taken_offer, _FREE, ("The cost cannot be estimated because the offer does not fit the job.",)
        )
    cost = offer.cost.total
    estimate = {"low": round(cost.low, 4), "likely": round(cost.likely, 4), "high": round(cost.high, 4)}
    reasons = offer.reasons or (f"You chose {offer.name}.",)
    return Placement({**taken_offer, "estimate": estimate}, cost, (*reasons, *offer.cautions))


def _engines() -> frozenset[str]:
    """Those by which further services are reached, where they are set up."""
    through = {name for name in provider_names() if name == "skypilot"}
    return frozenset(name for name in through if provider_spec(name).why_not() is None)


def _is(offer: Offer, taken: OfferTaken) -> bool:
    return (offer.gpu, offer.gpus, offer.kind) == (taken.gpu, taken.gpus, taken.kind) and (
        taken.region is None or offer.region in {None, taken.region}
    )


def _offers(request: PlacementRequest, provider: str | None, stated: Mapping[str, float]) -> Sequence[Offer]:
    providers = () if provider is None else (provider,)
    asked: Constraints = request.body.constraints.constraints(providers, _engines(), stated)
    try:
        need = Need.from_requirements(request.found)
    except ValueError as problem:
        raise InvalidInput.for_field("requirements", str(problem), code=code_of(problem)) from None
    return offers(need, prices=request.prices, now=now(), constraints=asked).offers
