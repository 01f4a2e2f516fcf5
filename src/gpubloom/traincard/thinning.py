"""From a curve to the points of a line in a chart: few, and never without the lowest and highest."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gpubloom.traincard.series import Curve

# For a chart, and a file that is sent again every few seconds, seven digits are more than enough.
_DIGITS = 7


@dataclass(slots=True)
class _Thinned:
    """The points of buckets that do not change any more: a live card draws the same curve again and again."""

    width: tuple[int, int]
    buckets: int = 0
    x: list[Any] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)
    t: list[float] = field(default_factory=list)


def line_of(curve: Curve, points: int) -> dict[str, list[Any]]:
    """x, y and t of at most `points` points. A bucket of several values becomes its lowest and highest."""
    together = max(1, math.ceil(len(curve) / max(1, points // 2)))
    width = (curve.per_bucket, together)
    done: _Thinned | None = curve.thinned
    if done is None or done.width != width:
        done = curve.thinned = _Thinned(width)
    groups = list(_joined(curve, done.buckets, together))
    # The newest bucket may still grow.
    settled = max(0, (len(curve) - 1) // together - done.buckets // together)
    _draw(done, groups[:settled])
    done.buckets += settled * together
    line = _Thinned(width, done.buckets, done.x[:], done.y[:], done.t[:])
    _draw(line, groups[settled:])
    return {"x": line.x, "y": line.y, "t": line.t}


def _draw(line: _Thinned, buckets: Iterable[tuple[float, ...]]) -> None:
    for first, last, low, high, value, time in buckets:
        if first == last or low != low:
            pairs: tuple[tuple[float, float], ...] = ((last, value if low == low else low),)
        # Which came first is not known; the last value tells in which direction the bucket left.
        elif abs(high - value) < abs(value - low):
            pairs = ((first, low), (last, high))
        else:
            pairs = ((first, high), (last, low))
        for place, level in pairs:
            line.x.append(_whole(place))
            line.y.append(shorter(level))
            line.t.append(round(time, 1))


def means_of(curve: Curve) -> Iterator[tuple[float, float]]:
    """The middle of each bucket and its mean, where there is one."""
    for first, last, _, _, total, _, _, _, finite in curve.rows():
        if finite:
            yield (first + last) / 2, total / finite


def _joined(curve: Curve, begin: int, together: int) -> Iterator[tuple[float, ...]]:
    """The buckets of a curve from `begin` on, so many at a time as one, without changing it."""
    first, last = curve.first[begin::together], curve.last[begin:]
    low, high, value, time = (column[begin:] for column in (curve.low, curve.high, curve.value, curve.time))
    if together == 1:
        return zip(first, last, low, high, value, time, strict=True)
    starts = range(0, len(last), together)
    # A sum is NaN as soon as one of its numbers is: then each is looked at.
    lowest, highest = (min, max) if (total := sum(low)) == total else (_lowest, _highest)
    ends = [min(start + together, len(last)) - 1 for start in starts]
    return zip(
        first,
        [last[place] for place in ends],
        [lowest(low[start : start + together]) for start in starts],
        [highest(high[start : start + together]) for start in starts],
        [value[place] for place in ends],
        [time[place] for place in ends],
        strict=True,
    )


def _lowest(values: Iterable[float]) -> float:
    return min((value for value in values if value == value), default=math.nan)


def _highest(values: Iterable[float]) -> float:
    return max((value for value in values if value == value), default=math.nan)


def shorter(number: float | None) -> float | int | None:
    """A number with the digits that a chart needs; None for what JSON has no word for."""
    if number is None or not math.isfinite(number):
        return None
    return _whole(float(f"{number:.{_DIGITS}g}"))


def _whole(number: float) -> float | int:
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
