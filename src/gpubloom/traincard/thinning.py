"""From a curve to a line in a chart: few points, each a mean with the lowest and highest of its values."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gpubloom.traincard.number_encoding import encode_number
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
    low: list[Any] = field(default_factory=list)
    high: list[Any] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    t: list[float] = field(default_factory=list)
    gaps: list[Any] = field(default_factory=list)


_LISTS = ("x", "y", "low", "high", "n", "t", "gaps")


def line_of(curve: Curve, points: int) -> dict[str, Any]:
    """A line as the snapshot describes it, of at most `points` points.

    `y` is the mean of a bucket and `x` the middle of its steps, at both ends of the line the first and last
    step; `low` and `high` are its extremes and `n` the number of its finite values, all three empty where
    every bucket is one value. `gaps` are the x at which a value was NaN or infinite. `last` is the newest
    value as it was reported.
    """
    # A thinned point is a mean and two extremes: half as many are the same amount of text.
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
    line = _Thinned(width, done.buckets, *(getattr(done, column)[:] for column in _LISTS))
    _draw(line, groups[settled:])
    if line.x:
        for end, x in ((0, _whole(curve.first[0])), (-1, _whole(curve.last[-1]))):
            if line.gaps and line.gaps[end] == line.x[end]:
                line.gaps[end] = x
            line.x[end] = x
    last = shown(curve.value[-1]) if len(curve) else None
    return {**{column: getattr(line, column) for column in _LISTS}, "last": last}


def _draw(line: _Thinned, buckets: Iterable[tuple[float, ...]]) -> None:
    is_thinned = line.width != (1, 1)
    for first, last, low, high, total, count, finite, time in buckets:
        line.x.append(x := _whole((first + last) / 2))
        if finite < count:
            line.gaps.append(x)
        line.y.append(shorter(total / finite if finite else math.nan))
        line.t.append(round(time, 1))
        if is_thinned:
            line.low.append(shorter(low))
            line.high.append(shorter(high))
            line.n.append(int(finite))


def means_of(curve: Curve) -> Iterator[tuple[float, float]]:
    """The middle of each bucket and its mean, where there is one."""
    for first, last, _, _, total, _, _, _, finite in curve.rows():
        if finite:
            yield (first + last) / 2, total / finite


def _joined(curve: Curve, begin: int, together: int) -> Iterator[tuple[float, ...]]:
    """The buckets of a curve from `begin` on, so many at a time as one, without changing it."""
    first, last = curve.first[begin::together], curve.last[begin:]
    low, high, total, time = (column[begin:] for column in (curve.low, curve.high, curve.total, curve.time))
    count, finite = curve.count[begin:], curve.finite[begin:]
    if together == 1:
        return zip(first, last, low, high, total, count, finite, time, strict=True)
    starts = range(0, len(last), together)
    # A sum is NaN as soon as one of its numbers is: then each is looked at.
    lowest, highest = (min, max) if (lows := sum(low)) == lows else (_lowest, _highest)
    ends = [min(start + together, len(last)) - 1 for start in starts]
    return zip(
        first,
        [last[index] for index in ends],
        [lowest(low[start : start + together]) for start in starts],
        [highest(high[start : start + together]) for start in starts],
        [sum(total[start : start + together]) for start in starts],
        [sum(count[start : start + together]) for start in starts],
        [sum(finite[start : start + together]) for start in starts],
        [time[index] for index in ends],
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


def shown(number: float) -> float | int | str:
    """A number as a card writes it: NaN and the infinities by the names of the protocol."""
    short = shorter(number)
    return encode_number(number) if short is None else short


def _whole(number: float) -> float | int:
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
