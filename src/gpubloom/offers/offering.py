"""`offers`: every row of the price table as an offer for a job, or the reason why it is none."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from gpubloom.offers.choosing import choose, suits, weigh
from gpubloom.offers.need import Need
from gpubloom.offers.offer import (
    Constraints,
    CreditUse,
    Estimate,
    Excluded,
    Offer,
    Offers,
    estimate,
    hours_on,
    is_named,
)
from gpubloom.offers.prices import Availability, PriceRow, PriceTable, ProviderFacts, in_force
from gpubloom.plan import Hardware
from gpubloom.plan.hardware import GIBIBYTE, kind_of

_ENGINES = {"skypilot": "SkyPilot"}
_GRANULARITY = {
    "second": "billed by the second",
    "minute": "billed by the minute",
    "hour": "billed by the hour",
}
_FREE_TIER_HOURS = 12.0


def offers(
    need: Need, *, prices: PriceTable, now: datetime, constraints: Constraints | None = None
) -> Offers:
    """All that can run the job, the recommended one first; all that cannot, with the reason."""
    asked = constraints or Constraints()
    found: list[Offer] = []
    excluded: list[Excluded] = []
    for row in _of_region(in_force(prices.rows, now), asked.region):
        facts = _with_free_limits(row, prices.providers[row.provider])
        reason = _unfit(need, row, facts, asked)
        if reason is None:
            figures = _figures(need, row, facts, asked)
            reason = _unaffordable(row, figures, asked)
            if reason is None:
                found.append(_offer(need, row, facts, figures, asked, now))
                continue
        excluded.append(Excluded(row.provider, facts.title, row.gpu, row.gpus, row.kind, reason))
    # What would need a person's hand comes after what would not, however cheap.
    found.sort(key=lambda offer: (not suits(need, offer), offer.weight, offer.provider, offer.gpu))
    # Nobody is told to pay for a GPU that the job does not use, unless they named the service.
    choice = choose(need, found) if need.wants_gpu or asked.providers else None
    if choice is None:
        return Offers(tuple(found), tuple(excluded), None)
    best = replace(choice.offer, recommended=True, reasons=choice.reasons)
    others = [offer for offer in found if offer is not choice.offer]
    return Offers((best, *others), tuple(excluded), replace(choice, offer=best))


def local_rows(hardware: Hardware, now: datetime) -> tuple[PriceRow, ...]:
    """The GPUs of this machine, as rows that cost nothing."""
    if not hardware.gpus:
        return ()
    first = hardware.gpus[0]
    alike = [gpu for gpu in hardware.gpus if gpu.name == first.name]
    return tuple(
        PriceRow(
            provider="local",
            gpu=first.name,
            gpus=count,
            memory_gb=round(first.memory_bytes / GIBIBYTE, 1),
            kind="free",
            hourly=0,
            source="This machine",
            read_on=now.date(),
            availability="immediate",
        )
        for count in sorted({1, len(alike)})
    )


def _of_region(rows: Iterable[PriceRow], region: str | None) -> Iterator[PriceRow]:
    """Each thing to buy once: where a service tells its regions apart, those rows speak for a region that was
    asked for, and the one for everywhere if none was."""
    alike: dict[object, list[PriceRow]] = {}
    for row in rows:
        alike.setdefault((row.provider, row.gpu, row.gpus, row.kind), []).append(row)
    for group in alike.values():
        everywhere = [row for row in group if row.region is None]
        told = [row for row in group if row.region is not None]
        # An old row of a region is no better than a new one for everywhere.
        newest = max((row.read_on for row in everywhere), default=None)
        told = [row for row in told if newest is None or row.read_on >= newest]
        yield from (everywhere or told) if region is None else (told or everywhere)


def _with_free_limits(row: PriceRow, facts: ProviderFacts) -> ProviderFacts:
    if row.kind != "free" or row.provider == "local":
        return facts
    longest = min(_FREE_TIER_HOURS, facts.longest_hours or _FREE_TIER_HOURS)
    return facts.model_copy(update={"longest_hours": longest})


def _machines(need: Need, row: PriceRow, facts: ProviderFacts) -> int | None:
    """How many times the row's price; None: no single machine has so many GPUs there."""
    if need.gpus > _most_gpus(row, facts):
        return None
    return 1 if row.gpus >= need.gpus else need.gpus


def _most_gpus(row: PriceRow, facts: ProviderFacts) -> int:
    """In one machine. Only the price of a single GPU can be multiplied."""
    return row.gpus if row.gpus > 1 else row.most_gpus or facts.most_gpus or 1


def _unfit(need: Need, row: PriceRow, facts: ProviderFacts, asked: Constraints) -> str | None:
    """Why this row cannot run the job, whatever it costs."""
    checks = (_not_asked_for(row, facts, asked), _too_small(need, row, facts), _too_short(need, row, facts))
    return next((reason for reason in checks if reason is not None), None)


def _not_asked_for(row: PriceRow, facts: ProviderFacts, asked: Constraints) -> str | None:
    if asked.providers and row.provider not in asked.providers:
        return f"{facts.title} is not one of the providers you selected."
    if facts.through is not None and facts.through not in asked.engines:
        engine = _ENGINES.get(facts.through, facts.through)
        return f"{facts.title} is available through {engine}, which is not set up."
    if asked.gpus and not any(is_named(row.gpu, name) for name in asked.gpus):
        return f"{row.gpu} is not one of the GPUs you selected."
    if row.kind == "spot" and not asked.spot:
        return "Spot instances are excluded, because they can be interrupted at any time."
    if row.availability == "unavailable":
        return f"{facts.title} has no such machine available at the moment."
    if asked.region is not None:
        there = (row.region.partition("-")[0],) if row.region is not None else facts.regions
        if there and asked.region not in there:
            return f"{facts.title} offers this GPU in {', '.join(there)}, not in {asked.region}."
    return None


def _too_small(need: Need, row: PriceRow, facts: ProviderFacts) -> str | None:
    if need.multi_node and not facts.multi_node:
        return f"The job needs several machines; {facts.title} provides only one."
    if _machines(need, row, facts) is None:
        most = _most_gpus(row, facts)
        return f"The job needs {need.gpus} GPUs in one machine; this machine has {most}."
    if row.memory_gb < need.memory_gb.likely:
        return (
            f"{row.gpu} has {row.memory_gb:g} GB of memory; the job needs about {need.memory_gb.likely:.3g} "
            "GB."
        )
    kind = kind_of(row.gpu)
    if need.bf16 and kind is not None and not kind.bf16:
        return f"{row.gpu} does not support bfloat16, which the job needs."
    return None


def _too_short(need: Need, row: PriceRow, facts: ProviderFacts) -> str | None:
    hours = hours_on(need, row.gpu).likely
    if facts.longest_hours is None or hours <= facts.longest_hours:
        return None
    if not need.resumes:
        return (
            f"{facts.title} stops a run after {facts.longest_hours:g} hours; this job takes about "
            f"{hours:.0f} hours and cannot resume from a checkpoint."
        )
    return None


def _figures(need: Need, row: PriceRow, facts: ProviderFacts, asked: Constraints) -> Estimate:
    return estimate(
        need,
        row,
        facts,
        machines=_machines(need, row, facts) or 1,
        in_region=asked.region is not None and row.region is None,
        waits=_availability(row, facts) != "immediate",
    )


def _unaffordable(row: PriceRow, figures: Estimate, asked: Constraints) -> str | None:
    credit = _credit(row, figures, asked)
    # What is paid from a credit is not paid again.
    paid = figures.cost.total if credit is None else credit.to_pay
    if asked.max_hourly is not None and figures.hourly.likely > asked.max_hourly:
        return (
            f"The machine costs ${figures.hourly.likely:.2f} per hour, more than your limit of "
            f"${asked.max_hourly:.2f}."
        )
    if asked.max_cost is not None and paid.likely > asked.max_cost:
        after = "" if credit is None else " after your credit"
        return (
            f"The job would cost about ${paid.likely:.2f}{after}, more than your limit of "
            f"${asked.max_cost:.2f}."
        )
    if asked.max_hours is not None and figures.hours.likely > asked.max_hours:
        return (
            f"The job would take about {figures.hours.likely:.1f} hours, more than your limit of "
            f"{asked.max_hours:g}."
        )
    return None


def _availability(row: PriceRow, facts: ProviderFacts) -> Availability:
    return row.availability or facts.availability


def _offer(
    need: Need, row: PriceRow, facts: ProviderFacts, figures: Estimate, asked: Constraints, now: datetime
) -> Offer:
    gpus = max(row.gpus, need.gpus)
    offer = Offer(
        provider=row.provider,
        title=facts.title,
        gpu=row.gpu,
        gpus=gpus,
        memory_gb=row.memory_gb,
        kind=row.kind,
        region=row.region or asked.region,
        hourly=figures.hourly,
        cost=figures.cost,
        credit=_credit(row, figures, asked),
        hours=figures.hours,
        wait_hours=figures.wait_hours,
        relaunches=figures.relaunches,
        availability=_availability(row, facts),
        unattended=facts.unattended,
        interactive=facts.interactive,
        features=tuple(_features(row, facts, figures)),
        cautions=tuple(_cautions(need, row, facts, figures, asked, now)),
        assumed=tuple(_assumed(need, row, facts)),
        stale=row.stale(now),
        source=row.source,
        read_on=row.read_on,
        weight=0.0,
    )
    return replace(offer, weight=weigh(need, offer, asked, facts.reliability))


def _credit(row: PriceRow, figures: Estimate, asked: Constraints) -> CreditUse | None:
    remaining = asked.credits.get(row.provider, 0.0)
    total = figures.cost.total
    return CreditUse.of(remaining, total) if remaining > 0 and total.high > 0 else None


def _features(row: PriceRow, facts: ProviderFacts, figures: Estimate) -> Iterator[str]:
    if row.hourly > 0:
        yield _GRANULARITY[facts.billing]
    if facts.longest_hours is not None:
        limit = f"at most {facts.longest_hours:g} hours per run"
        if figures.relaunches:
            times = "once" if figures.relaunches == 1 else f"{figures.relaunches} times"
            limit += f": restarted {times} from a checkpoint, which the estimate includes"
        yield limit
    yield from facts.features


def _cautions(
    need: Need, row: PriceRow, facts: ProviderFacts, figures: Estimate, asked: Constraints, now: datetime
) -> Iterator[str]:
    if need.memory_gb.high > row.memory_gb:
        yield f"The GPU memory may be too small: the job may need {need.memory_gb.high:.3g} GB."
    if need.hours_of_any_gpu:
        yield f"The script states its hours without a GPU type; on {row.gpu} they may differ."
    if row.gpus > need.gpus:
        idle = row.gpus - need.gpus
        yield f"{idle} of the {row.gpus} GPUs would be idle and still billed."
    if row.kind == "spot":
        yield "A spot instance can be interrupted at any time; the job then resumes from its last checkpoint."
    if not need.interactive and not facts.unattended:
        yield (
            "You must start the job in a browser and keep the page open; other providers run this job "
            "unattended."
        )
    if need.interactive and not facts.interactive:
        yield "Interactive work is not possible while the job runs."
    if not facts.runs_scripts:
        yield "Before the script can run there, push the model that bloom providers replicate-model writes."
    credit = _credit(row, figures, asked)
    most = figures.cost.total.high if credit is None else credit.to_pay.high
    if asked.max_cost is not None and most > asked.max_cost:
        yield f"The job may cost up to ${most:.2f}, more than your limit of ${asked.max_cost:.2f}."
    if credit is not None:
        yield from _beyond_credit(credit, facts, figures)
    if asked.region is not None and row.region is None and not facts.regions:
        yield f"It is not known whether the machine is in {asked.region}."
    yield from _price_cautions(row, now)
    yield from facts.notes


def _price_cautions(row: PriceRow, now: datetime) -> Iterator[str]:
    if row.assumed:
        yield "The price is an assumption: no price list confirms it."
    elif row.stale(now):
        yield f"The price is from {row.read_on:%d %B %Y} and may have changed."


def _beyond_credit(credit: CreditUse, facts: ProviderFacts, figures: Estimate) -> Iterator[str]:
    if credit.to_pay.likely > 0:
        yield (
            f"The job would use up your credit at {facts.title}: ${credit.remaining:.2f} is left, and you "
            f"pay about ${credit.to_pay.likely:.2f}."
        )
    elif credit.to_pay.high > 0:
        yield (
            f"The job may cost up to ${figures.cost.total.high:.2f}, more than your credit of "
            f"${credit.remaining:.2f} at {facts.title}."
        )


# How a person calls the facts whose field names say it badly.
_FACT_NAMES = {
    "start_up_seconds": "startup time",
    "queue_seconds": "waiting time for a machine",
    "storage_gb_month": "disk price",
    "egress_gb": "network price",
    "cpu_and_memory_hourly": "price of CPU and memory",
    "most_gpus": "number of GPUs in one machine",
    "billing": "billing interval",
}


def _assumed(need: Need, row: PriceRow, facts: ProviderFacts) -> Iterable[str]:
    price = ("price",) if row.assumed else ()
    names = (_FACT_NAMES.get(name, name.replace("_", " ")) for name in facts.assumed)
    return (*price, *need.assumed, *names)
