"""What an offer is: how long a job takes on a GPU, what that costs there, and what a person may ask for.

Costs are compute, storage, network and start-up. What is not offered says why.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from types import MappingProxyType
from typing import Literal

from gpubloom.offers.need import Need
from gpubloom.offers.prices import Availability, Granularity, PriceKind, PriceRow, ProviderFacts, Span
from gpubloom.plan.hardware import assumed_kind

_HOURS_A_MONTH = 730.0
# What an object store gives one machine, in GB a second.
_FETCHING = Span(0.02, 0.1, 0.4)
# A script that was written for one GPU rarely keeps a faster one busy: each doubling of the speed that is
# printed on the box adds so much of the first GPU's speed.
_GAIN_OF_A_DOUBLING = 0.6
_GRANULARITY_HOURS: dict[Granularity, float] = {"second": 1 / 3600, "minute": 1 / 60, "hour": 1.0}

Priority = Literal["price", "balanced", "time"]


@dataclass(frozen=True)
class Cost:
    """US dollars, by what they are for."""

    compute: Span
    storage: Span
    network: Span
    start_up: Span

    @property
    def total(self) -> Span:
        return self.compute + self.storage + self.network + self.start_up


@dataclass(frozen=True)
class Estimate:
    """`hours` of work, and before it `wait_hours` for a machine and its start."""

    hours: Span
    wait_hours: Span
    relaunches: int
    hourly: Span
    cost: Cost


def hours_on(need: Need, gpu: str) -> Span:
    """Between what the speed of computing and the speed of memory say; a loop is bound by either."""
    if need.hours_of_any_gpu:
        return need.hours
    slow, fast = _gains(gpu, need.reference_gpu)
    # A root of two equal numbers may differ from them by a rounding error.
    likely = min(max(math.sqrt(slow * fast), slow), fast)
    return Span(need.hours.low / fast, need.hours.likely / likely, need.hours.high / slow)


@cache
def _gains(gpu: str, reference: str) -> tuple[float, float]:
    here, there = assumed_kind(gpu), assumed_kind(reference)
    used = [_used(here.flops / there.flops), _used(here.bandwidth / there.bandwidth)]
    return min(used), max(used)


def _used(gain: float) -> float:
    return 1 + _GAIN_OF_A_DOUBLING * math.log2(gain) if gain > 1 else gain


def estimate(
    need: Need, row: PriceRow, facts: ProviderFacts, *, machines: float, in_region: bool, waits: bool
) -> Estimate:
    """What a job takes and costs on `machines` times a row; with relaunches where runs are cut."""
    hours = hours_on(need, row.gpu)
    start = facts.start_up_seconds.span * (1 / 3600) + _fetching(need)
    relaunches = hours.each(lambda value: _relaunches(value, facts.longest_hours))
    # Half of what lies between two checkpoints is done again, on average.
    hours = hours + relaunches * min(need.checkpoint_minutes / 120, (facts.longest_hours or 1) / 2)
    hourly = (row.hourly_span + facts.cpu_and_memory_hourly.span * row.gpus) * machines
    if in_region:
        hourly = hourly * facts.region_factor.span
    starts = start * (relaunches + Span.of(1))
    billed = (hours + starts).each(lambda value: rounded_up(value, facts.billing))
    whole, start_up = billed * hourly, starts * hourly
    # What is rounded up counts as compute; it shrinks where a start takes longer, and a span must not.
    low, likely, high = (max(0.0, w - s) for w, s in zip(_three(whole), _three(start_up), strict=True))
    compute = Span(low, max(low, likely), max(low, likely, high))
    gone_by = billed * (need.disk_gb / _HOURS_A_MONTH)
    queue = facts.queue_seconds.span * (1 / 3600) if waits else Span.of(0)
    return Estimate(
        hours=hours,
        wait_hours=queue + starts,
        relaunches=round(relaunches.likely),
        hourly=hourly,
        cost=Cost(
            compute=compute,
            storage=facts.storage_gb_month.span * gone_by,
            network=facts.egress_gb.span * need.artifacts_gb,
            start_up=start_up,
        ),
    )


def rounded_up(hours: float, billing: Granularity) -> float:
    unit = _GRANULARITY_HOURS[billing]
    # A hair less, or 1.0 hours made of minutes would be billed as 61 of them.
    return max(0.0, math.ceil(hours / unit - 1e-9)) * unit


def _fetching(need: Need) -> Span:
    seconds = (need.data_gb / _FETCHING.high, need.data_gb / _FETCHING.likely, need.data_gb / _FETCHING.low)
    return Span(*(value / 3600 for value in seconds))


def _relaunches(hours: float, longest: float | None) -> float:
    return 0.0 if not longest else max(0.0, math.ceil(hours / longest - 1e-9) - 1.0)


def _three(span: Span) -> tuple[float, float, float]:
    return span.low, span.likely, span.high


def is_named(gpu: str, written: str) -> bool:
    """Whether this name means that GPU of the price table: in any case, also without maker or memory."""
    plain = written.casefold().removeprefix("nvidia").strip()
    return re.fullmatch(rf"{re.escape(plain)}( \d+gb)?", gpu.casefold()) is not None


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
class CreditUse:
    """What a credit of so many dollars pays of a cost, and what is left to pay."""

    remaining: float
    covered: Span
    to_pay: Span

    @classmethod
    def of(cls, remaining: float, cost: Span) -> "CreditUse":
        return cls(
            remaining=remaining,
            covered=cost.each(lambda value: min(value, remaining)),
            to_pay=cost.each(lambda value: max(0.0, value - remaining)),
        )


@dataclass(frozen=True)
class Offer:
    """One way to run the job. `hourly` is of the whole machine, with all that is billed besides the GPU."""

    provider: str
    title: str
    gpu: str
    gpus: int
    memory_gb: float
    kind: PriceKind
    region: str | None
    hourly: Span
    cost: Cost
    # None: nothing is left at this service, or it costs nothing.
    credit: CreditUse | None
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
    """A machine that is not offered, and the reason."""

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
