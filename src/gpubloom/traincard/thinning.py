"""From a curve to the points of a line in a chart: few, and never without the lowest and highest."""

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from gpubloom.traincard.series import Curve

# For a chart, and a file that is sent again every few seconds, seven digits are more than enough.
_DIGITS = 7


def line_of(curve: Curve, points: int) -> dict[str, list[Any]]:
    """x, y and t of at most `points` points. A bucket of several values becomes its lowest and highest."""
    x: list[Any] = []
    y: list[Any] = []
    t: list[float] = []
    for first, last, low, high, value, time in _joined(curve, max(1, points // 2)):
        if first == last or low != low:
            pairs: tuple[tuple[float, float], ...] = ((last, value if low == low else low),)
        # Which came first is not known; the last value tells in which direction the bucket left.
        elif abs(high - value) < abs(value - low):
            pairs = ((first, low), (last, high))
        else:
            pairs = ((first, high), (last, low))
        for place, level in pairs:
            x.append(_whole(place))
            y.append(shorter(level))
            t.append(round(time, 1))
    return {"x": x, "y": y, "t": t}


def means_of(curve: Curve) -> Iterator[tuple[float, float]]:
    """The middle of each bucket and its mean, where there is one."""
    for first, last, _, _, total, _, _, _, finite in curve.rows():
        if finite:
            yield (first + last) / 2, total / finite


def _joined(curve: Curve, most: int) -> Iterator[tuple[float, ...]]:
    """The curve in at most `most` buckets, without changing it."""
    together = math.ceil(len(curve) / most)
    rows = zip(curve.first, curve.last, curve.low, curve.high, curve.value, curve.time, strict=True)
    if together <= 1:
        yield from rows
        return
    for _, group in groupby(enumerate(rows), key=lambda numbered: numbered[0] // together):
        some = [row for _, row in group]
        yield (
            some[0][0],
            some[-1][1],
            _of_numbers(min, (row[2] for row in some)),
            _of_numbers(max, (row[3] for row in some)),
            some[-1][4],
            some[-1][5],
        )


def _of_numbers(choose: Any, values: Iterable[float]) -> float:
    known = [value for value in values if value == value]
    return float(choose(known)) if known else math.nan


def shorter(number: float | None) -> float | int | None:
    """A number with the digits that a chart needs; None for what JSON has no word for."""
    if number is None or not math.isfinite(number):
        return None
    return _whole(float(f"{number:.{_DIGITS}g}"))


def _whole(number: float) -> float | int:
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
