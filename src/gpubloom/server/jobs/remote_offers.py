"""What a job needs to know of rented machines; who rents them out stands above (`rentals`)."""

from typing import Annotated, Any, Protocol, cast

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan import Hardware
from gpubloom.plan.hardware import GIBIBYTE, Gpu, kind_of, peak_flops
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.jobs.schemas import OfferTaken

# Of the printed memory, what a program can use.
_USABLE = 0.93
# Beside one GPU; services say too little about it to know more.
_HOST_GIBIBYTES, _CORES = 32, 4
_SPREAD = {"low": 0.7, "likely": 1.0, "high": 1.6}


class TakesOffers(Protocol):
    """Somebody who can rent machines."""

    async def take(self, session: AsyncSession, principal: Principal, offer: OfferTaken) -> dict[str, Any]:
        """The place that a job's row keeps. InvalidInput: this offer cannot be taken, and why."""


def offer_service_of(request: Request) -> TakesOffers:
    return cast("TakesOffers", request.app.state.offer_service)


CurrentOfferService = Annotated[TakesOffers, Depends(offer_service_of)]


def hardware_of(offer: dict[str, Any]) -> Hardware:
    """The machine behind an offer, as the planner sees it."""
    name, count = str(offer["gpu"]), int(offer["gpus"])
    kind = kind_of(name)
    gpu = Gpu(
        name=name,
        memory_bytes=int(offer["memory_gb"] * GIBIBYTE * _USABLE),
        flops=peak_flops(name),
        bf16=kind is None or kind.bf16,
    )
    return Hardware(
        name=f"{offer['gpu']} at {offer['title']}",
        host_memory_bytes=_HOST_GIBIBYTES * count * GIBIBYTE,
        cpu_cores=_CORES * count,
        gpus=(gpu,) * count,
    )


def with_estimate(offer: dict[str, Any], seconds: float | None) -> dict[str, Any]:
    """What a training that is planned to take so long would cost there."""
    if seconds is None:
        return offer
    hours = seconds / 3600 + offer["start_up_seconds"] / 3600
    likely = {name: round(hours * spread * offer["hourly"], 4) for name, spread in _SPREAD.items()}
    return {**offer, "estimate": likely}
