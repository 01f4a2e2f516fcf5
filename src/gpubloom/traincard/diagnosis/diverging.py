"""Diverging: a loss that is no longer a number, or far above where it was."""

import math
from collections.abc import Iterator
from itertools import takewhile
from statistics import median

from gpubloom.traincard.diagnosis.finding import Finding, Limits
from gpubloom.traincard.reading import Point, Reading

_NEWEST = 5
_FEWEST_BEFORE = 20
# The median distance from the median of normal noise, as a standard deviation.
_DEVIATION_OF_MEDIAN_DISTANCE = 1.4826


def diverging(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Losses and gradient norms of rank 0."""
    for name, points in sorted(reading.recent.items()):
        if name.endswith(("loss", "grad_norm")):
            found = _not_a_number(name, list(points)) or (
                _spike(name, list(points), limits) if name.endswith("loss") else None
            )
            if found:
                yield found


def _not_a_number(name: str, points: list[Point]) -> Finding | None:
    bad = list(takewhile(lambda point: not math.isfinite(point.value), reversed(points)))
    if not bad:
        return None
    first = bad[-1]
    word = "NaN" if math.isnan(first.value) else "infinite"
    # One gradient norm that overflows is how mixed precision finds its scale; a loss is not.
    if name.endswith("grad_norm") and len(bad) < _NEWEST:
        return None
    return Finding(
        "diverging",
        "critical",
        f"{name} is {word} since step {first.step:,.0f}. Resume from the last checkpoint before it with a "
        "lower learning rate, and look at the data of that step.",
        {
            "series": name,
            "step": first.step,
            "value": word,
            "steps": len(bad),
            "before": _last_number(points),
        },
        first.t,
    )


def _last_number(points: list[Point]) -> dict[str, float] | None:
    for point in reversed(points):
        if math.isfinite(point.value):
            return {"step": point.step, "value": point.value}
    return None


def _spike(name: str, points: list[Point], limits: Limits) -> Finding | None:
    points = [point for point in points if math.isfinite(point.value)]
    before = [point.value for point in points[:-_NEWEST]]
    if len(before) < _FEWEST_BEFORE:
        return None
    usual = median(before)
    deviation = _DEVIATION_OF_MEDIAN_DISTANCE * median(abs(value - usual) for value in before)
    # Both: far outside the noise, and much in itself. A falling loss lies below its own median.
    allowed = usual + max(limits.spike_deviations * deviation, limits.spike_share * abs(usual))
    newest = points[-_NEWEST:]
    high = median(point.value for point in newest)
    if high <= allowed:
        return None
    since = next(point for point in newest if point.value > allowed)
    return Finding(
        "diverging",
        "warning",
        f"{name} jumped to {high:.4g} at step {since.step:,.0f}; it was about {usual:.4g} before.",
        {"series": name, "step": since.step, "value": high, "usual": usual, "allowed": allowed},
        since.t,
    )
