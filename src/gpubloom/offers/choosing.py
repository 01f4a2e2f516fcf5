"""`choose`: which offer to take, and why.

All that matters is weighed in one currency, dollars: what the job costs after credits, what waiting for it is
worth, and what is lost when it has to be done again. Some kinds of work have a usual provider; it is kept
unless another is better by more than prices and hours are uncertain, and then the reason says by how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpubloom.offers.need import Need
from gpubloom.offers.offer import Choice, Constraints, Offer, Priority

# What an hour of waiting is worth to a person who says nothing, who is short of money, who is in a hurry.
_AN_HOUR: dict[Priority, float] = {"balanced": 0.25, "price": 0.02, "time": 5.0}
# The usual service is left for one whose weight is less than this part of its own.
_CLEARLY_BETTER = 3 / 4
# Work that may not fit may fail on the first step.
_MAY_NOT_FIT = 0.2
_TAKEN_AWAY = 0.1
_PRICE_ASSUMED = 0.05
_SHORT_HOURS, _SHORT_GB, _LONG_HOURS = 1.0, 16.0, 24.0


@dataclass(frozen=True)
class Archetype:
    """A kind of work and where it usually goes."""

    name: str
    provider: str
    # As a sentence says it.
    phrase: str
    title: str
    reason: str


SHORT_BURST = Archetype(
    "short burst",
    "modal",
    "a short job",
    "Modal",
    "The job takes less than an hour and little memory: a fast start and billing by the second matter most.",
)
INTERACTIVE = Archetype(
    "interactive",
    "colab",
    "interactive work",
    "Colab",
    "The work is interactive: a notebook in the browser fits best.",
)
LONG_RUN = Archetype(
    "long run",
    "lambda",
    "a long job",
    "Lambda",
    "The job takes more than a day: a machine without a time limit avoids restarts.",
)
USUAL_RUN = Archetype(
    "usual run",
    "runpod",
    "a job of this length",
    "RunPod",
    "The job takes a few hours on one machine: this provider is a good balance of price and reliability, and "
    "its prices and stock are live.",
)


def archetype_of(need: Need) -> Archetype:
    """The first that fits, in this order."""
    if need.hours.likely < _SHORT_HOURS and need.memory_gb.likely < _SHORT_GB and not need.interactive:
        return SHORT_BURST
    if need.interactive:
        return INTERACTIVE
    if need.hours.likely > _LONG_HOURS:
        return LONG_RUN
    return USUAL_RUN


def weigh(need: Need, offer: Offer, asked: Constraints, reliability: float) -> float:
    """The score of an offer in dollars, lower is better: its cost, and a penalty for each disadvantage."""
    paid = offer.cost.total.likely if offer.credit is None else offer.credit.to_pay.likely
    hours = offer.hours.likely + offer.wait_hours.likely
    worth = _AN_HOUR[asked.priority]
    risk = 1 - reliability
    if need.memory_gb.high > offer.memory_gb:
        risk += _MAY_NOT_FIT
    if offer.kind == "spot":
        risk += _TAKEN_AWAY
    if "price" in offer.assumed:
        risk += _PRICE_ASSUMED
    return paid + worth * hours + risk * (paid + worth * hours)


def choose(need: Need, offers: Sequence[Offer]) -> Choice | None:
    """The offer to take; None: there is none that could be taken without a person being asked more."""
    able = [offer for offer in offers if suits(need, offer)]
    if not able:
        return None
    kind = archetype_of(need)
    best = min(able, key=_order)
    usual = min((offer for offer in able if offer.provider == kind.provider), key=_order, default=None)
    if usual is None:
        absent = f"The usual provider for {kind.phrase}, {kind.title}, has no suitable offer."
        reasons = (absent, _how_it_compares(best, able))
        return Choice(best, (*reasons, *_particulars(best)), kind.name, kind.provider)
    if best.weight < _CLEARLY_BETTER * usual.weight:
        reasons = (_why_not_the_usual(best, usual, kind), _how_it_compares(best, able))
        return Choice(best, (*reasons, *_particulars(best)), kind.name, kind.provider)
    reasons = (kind.reason, _how_it_compares(usual, able))
    return Choice(usual, (*reasons, *_particulars(usual)), kind.name, kind.provider)


def suits(need: Need, offer: Offer) -> bool:
    """Whether it can be recommended to somebody who is not asked again."""
    if offer.availability == "unavailable":
        return False
    if need.interactive:
        return offer.interactive
    return offer.unattended


def _order(offer: Offer) -> tuple[float, str, str]:
    return offer.weight, offer.provider, offer.gpu


def _why_not_the_usual(best: Offer, usual: Offer, kind: Archetype) -> str:
    if best.credit is not None:
        return (
            f"You have ${best.credit.remaining:.2f} of credits left at {best.title}; "
            f"{usual.name}, the usual provider for {kind.phrase}, would cost about "
            f"${usual.cost.total.likely:.2f}."
        )
    gains = []
    saved = usual.cost.total.likely - best.cost.total.likely
    if saved >= 0.01:
        gains.append(f"costs about ${saved:.2f} less")
    sooner = _until_done(usual) - _until_done(best)
    if sooner >= 0.05:
        gains.append(f"finishes about {_duration(sooner)} sooner")
    # Less weight with neither means less risk.
    said = " and ".join(gains) or "is more likely to finish without a failure"
    return f"{best.name} {said} than {usual.name}, the usual provider for {kind.phrase}."


def _how_it_compares(chosen: Offer, able: Sequence[Offer]) -> str:
    total = chosen.cost.total
    price = (
        "nothing" if total.high == 0 else f"about ${total.likely:.2f} (${total.low:.2f} to ${total.high:.2f})"
    )
    told = f"This offer costs {price} and finishes after about {_duration(_until_done(chosen))}"
    cheaper = [offer for offer in able if offer.cost.total.likely < total.likely]
    sooner = [offer for offer in able if _until_done(offer) < _until_done(chosen)]
    if not cheaper:
        return f"{told}; no other suitable offer is cheaper."
    if not sooner:
        return f"{told}; no other suitable offer is faster."
    least = min(cheaper, key=lambda offer: offer.cost.total.likely)
    return f"{told}; the cheapest suitable offer is {least.name} for about ${least.cost.total.likely:.2f}."


def _particulars(chosen: Offer) -> tuple[str, ...]:
    told = []
    if chosen.credit is not None:
        told.append(
            f"${chosen.credit.covered.likely:.2f} of the cost is paid from your credits at {chosen.title}."
        )
    if chosen.relaunches:
        times = "once" if chosen.relaunches == 1 else f"{chosen.relaunches} times"
        told.append(f"The job is restarted {times} from its checkpoint; the estimate includes this.")
    if chosen.availability == "unknown":
        told.append(f"Whether {chosen.title} has a free machine is known only when the job starts.")
    return tuple(told)


def _until_done(offer: Offer) -> float:
    return offer.hours.likely + offer.wait_hours.likely


def _duration(hours: float) -> str:
    if hours < 1:
        minutes = max(1, round(hours * 60))
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
