"""What is offered, what is not and why, and what a person may ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import Literal

from gpubloom.offers.estimating import Cost
from gpubloom.offers.prices import Availability, PriceKind, Span

Priority = Literal["price", "balanced", "time"]


@dataclass(frozen=True)
class Constraints:
    """What must hold, and what is to be weighed. Empty sets restrict nothing."""

    providers: frozenset[str] = frozenset()
    # Engines that are set up here, by which further services are reached.
    engines: frozenset[str] = frozenset()
    gpus: frozenset[str] = frozenset()
    # Parts of the world: us, eu, asia.
    region: str | None = None
    max_cost: float | None = None
    max_hourly: float | None = None
    max_hours: float | None = None
    spot: bool = True
    # US dollars that are left at a service and need not be paid.
    credits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    priority: Priority = "balanced"


@dataclass(frozen=True)
class Offer:
    """One way to run the job. `hourly` is of the whole machine, with all that is billed beside the GPU."""

    provider: str
    title: str
    gpu: str
    gpus: int
    memory_gb: float
    kind: PriceKind
    region: str | None
    hourly: Span
    cost: Cost
    hours: Span
    wait_hours: Span
    relaunches: int
    availability: Availability
    unattended: bool
    interactive: bool
    features: tuple[str, ...]
    # What a person should know before choosing it.
    cautions: tuple[str, ...]
    # Figures that nobody read anywhere.
    assumed: tuple[str, ...]
    stale: bool
    source: str
    read_on: date
    # US dollars that price, time, risk and waiting come to; the least is best.
    weight: float
    recommended: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        count = f"{self.gpus}× " if self.gpus > 1 else ""
        tier = ", free tier" if self.kind == "free" and self.provider != "local" else ""
        tier = ", spot" if self.kind == "spot" else tier
        return f"{count}{self.gpu} at {self.title}{tier}"


@dataclass(frozen=True)
class Excluded:
    """What was not offered, and why."""

    provider: str
    title: str
    gpu: str
    gpus: int
    kind: PriceKind
    reason: str


@dataclass(frozen=True)
class Choice:
    """The offer to take, why, and what its kind of work usually goes to."""

    offer: Offer
    reasons: tuple[str, ...]
    archetype: str
    usual: str


@dataclass(frozen=True)
class Offers:
    """The recommended offer first, the others by their weight."""

    offers: tuple[Offer, ...]
    excluded: tuple[Excluded, ...]
    choice: Choice | None
