"""Curves as a page shows them: columns of points, gaps, and when steps happened.

Nothing here needs a database: `bloom ui` starts without one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpubloom.server.schema import MetricNumber

Axis = Literal["step", "time"]

# x, low, high, total, count of finite values; without any, the values were NaN or infinite.
Sample = tuple[float, float, float, float, int]


@dataclass
class LastPoint:
    """The newest value of a series as it was reported; NaN and the infinities by the protocol's names."""

    x: int
    attempt: int
    value: MetricNumber


@dataclass
class Gaps:
    """Where values were NaN or infinite."""

    x: list[float] = field(default_factory=list)
    attempt: list[int] = field(default_factory=list)


@dataclass
class Clock:
    """When the steps of an attempt happened: pairs of step and time, in order."""

    attempt: int
    x: list[int] = field(default_factory=list)
    time: list[float] = field(default_factory=list)


@dataclass
class Curve:
    """One series in columns. Where points were thinned, `value` is the mean of `count` values between `low`
    and `high`.

    `last` is of the whole series, whatever range was asked for.
    """

    name: str
    rank: int
    axis: Axis
    x: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    attempt: list[int] = field(default_factory=list)
    gaps: Gaps = field(default_factory=Gaps)
    last: LastPoint | None = None


def thin(curve: Curve, attempt: int, samples: Sequence[Sample], every: int) -> None:
    """Adds the samples of an attempt to a curve, `every` of them as one point."""
    for start in range(0, len(samples), every):
        part = samples[start : start + every]
        x = (part[0][0] + part[-1][0]) / 2
        finite = [sample for sample in part if sample[4]]
        if len(finite) < len(part):
            curve.gaps.x.append(x)
            curve.gaps.attempt.append(attempt)
        if finite:
            count = sum(sample[4] for sample in finite)
            curve.x.append(x)
            curve.low.append(min(sample[1] for sample in finite))
            curve.high.append(max(sample[2] for sample in finite))
            curve.value.append(sum(sample[3] for sample in finite) / count)
            curve.count.append(count)
            curve.attempt.append(attempt)
