"""The JSON of metrics."""

from pydantic import Field

from gpubloom.server.jobs.curves import Axis
from gpubloom.server.schema import MetricNumber, Schema


class LastPoint(Schema):
    """The newest value of a curve, as the run reported it."""

    x: float
    attempt: int
    value: MetricNumber


class GapsOut(Schema):
    """Where values were NaN or infinite."""

    x: list[float]
    attempt: list[int]


class ClockOut(Schema):
    """When the steps of an attempt happened: pairs of step and seconds since 1970."""

    attempt: int
    x: list[int]
    time: list[float]


class CurveOut(Schema):
    """One curve. Where points were thinned, `value` is the mean of `count` values, `low` their minimum and
    `high` their maximum.
    """

    name: str
    rank: int
    axis: Axis
    x: list[float]
    value: list[float]
    low: list[float]
    high: list[float]
    count: list[int]
    attempt: list[int]
    gaps: GapsOut
    last: LastPoint | None


class Curves(Schema):
    """The curves of a job. `position`: follow the stream from this position."""

    position: int
    series: list[CurveOut]
    clock: list[ClockOut] = Field([], description="Whole run; empty where only a range was asked for.")
