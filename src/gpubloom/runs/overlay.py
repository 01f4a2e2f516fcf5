"""Curves of many runs in one chart: for each group the mean of its runs, and how far they lie apart.

The mean is taken where every run of the group that did not fail has values, so that it does not jump when
one of them ends. A failed run is left out of the mean and drawn by itself up to where it ended.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_RUNS = 50
TOKENS_SERIES = "train/tokens_seen"


@dataclass(frozen=True)
class RunCurve:
    """One metric of one run along steps or tokens, `x` growing. Repeated steps: of the newest attempt."""

    run_id: str
    name: str
    failed: bool
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class GroupCurve:
    """The mean of a group, the lowest and highest run, and the standard deviation, in columns.

    `runs`: how many runs the mean is of; 0 when none has values. `failed`: each by itself.
    """

    runs: int
    x: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    deviation: list[float] = field(default_factory=list)
    failed: list[RunCurve] = field(default_factory=list)


def overlay(curves: Sequence[RunCurve], points: int = 400) -> GroupCurve:
    """The curves of one group as one."""
    failed = [curve for curve in curves if curve.failed and len(curve.x)]
    whole = [curve for curve in curves if not curve.failed and len(curve.x)]
    if not whole:
        # All of them failed: there is no mean, and each is drawn.
        return GroupCurve(0, failed=failed)
    if len(whole) == 1:
        only = whole[0]
        values = list(only.y)
        return GroupCurve(1, list(only.x), values, values, values, [0.0] * len(values), failed)
    grid = _grid(whole, points)
    columns = [[_at(curve, x) for curve in whole] for x in grid]
    means = [math.fsum(values) / len(whole) for values in columns]
    return GroupCurve(
        len(whole),
        grid,
        means,
        [min(values) for values in columns],
        [max(values) for values in columns],
        [_deviation(values, mean) for values, mean in zip(columns, means, strict=True)],
        failed,
    )


def _deviation(values: Sequence[float], mean: float) -> float:
    """The sample standard deviation, without the exact fractions of `statistics`: a chart has thousands."""
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _grid(curves: Sequence[RunCurve], points: int) -> list[float]:
    """Positions that all curves cover: those of the one with the most points, at most `points`."""
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    densest = max(curves, key=lambda curve: len(curve.x))
    inside = [x for x in densest.x if first <= x <= last]
    every = -(-len(inside) // points) or 1
    grid = inside[::every]
    if inside and grid[-1] != inside[-1]:
        grid.append(inside[-1])
    return grid or ([first] if first == last else [])


def _at(curve: RunCurve, x: float) -> float:
    """The value at a position, on the line between its neighbours."""
    index = bisect_left(curve.x, x)
    if index >= len(curve.x):
        return curve.y[-1]
    if curve.x[index] == x or index == 0:
        return curve.y[index]
    x0, x1, y0, y1 = curve.x[index - 1], curve.x[index], curve.y[index - 1], curve.y[index]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def newest_attempt(
    x: Sequence[float], y: Sequence[float], attempts: Sequence[int]
) -> tuple[list[float], list[float]]:
    """A curve in order, without steps that a later attempt did again and values that are no number."""
    begins: dict[int, float] = {}
    for position, attempt in zip(x, attempts, strict=True):
        begins[attempt] = min(position, begins.get(attempt, math.inf))
    order = sorted(begins)
    # Where a later attempt begins, the earlier ones end.
    ends = {
        attempt: min((begins[later] for later in order if later > attempt), default=math.inf)
        for attempt in order
    }
    kept = sorted(
        (position, value)
        for position, value, attempt in zip(x, y, attempts, strict=True)
        if position < ends[attempt] and math.isfinite(value)
    )
    return [position for position, _ in kept], [value for _, value in kept]


def along_tokens(curve: RunCurve, tokens: RunCurve) -> RunCurve | None:
    """The same curve along the tokens that the run had seen; None: the run does not report them."""
    if not len(tokens.x):
        return None
    return RunCurve(curve.run_id, curve.name, curve.failed, [_at(tokens, x) for x in curve.x], curve.y)
