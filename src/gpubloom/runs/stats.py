"""What the run list knows of a metric: its last, lowest, highest and mean value. Kept with the run, never
computed from its points when a list is shown.

A run may report any number of series; the first `MOST_SERIES` are kept.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpubloom.traincard.number_encoding import decode_number, encode_number

MOST_SERIES = 300
# The parts of a metric that can be a column: `eval/loss.min`. Without one: the last value.
PARTS = ("last", "min", "max", "mean")


@dataclass
class MetricStats:
    """One series of rank 0. NaN and the infinities count for `last` only."""

    last: float = math.nan
    step: float = 0.0
    min: float | None = None
    min_step: float | None = None
    max: float | None = None
    max_step: float | None = None
    total: float = 0.0
    count: int = 0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def add(self, points: Iterable[tuple[float, float]]) -> None:
        """Takes in steps and values, in the order in which they were reported."""
        for step, value in points:
            self.last, self.step = value, step
            if not math.isfinite(value):
                continue
            if self.min is None or value < self.min:
                self.min, self.min_step = value, step
            if self.max is None or value > self.max:
                self.max, self.max_step = value, step
            self.total += value
            self.count += 1

    def as_list(self) -> list[Any]:
        """For JSON, short: a list of runs reads thousands of them."""
        low, high = self.min, self.max
        return [
            encode_number(self.last),
            self.step,
            low,
            self.min_step,
            high,
            self.max_step,
            self.total if math.isfinite(self.total) else 0.0,
            self.count if math.isfinite(self.total) else 0,
        ]

    @classmethod
    def from_list(cls, stored: Any) -> "MetricStats":
        last, step, low, low_step, high, high_step, total, count = stored
        return cls(float(decode_number(last)), step, low, low_step, high, high_step, total, count)


def with_last_values(stored: Mapping[str, Any], values: Any) -> dict[str, Any]:
    """The statistics with the last values of series that have none yet, as latest.json says them."""
    known = dict(stored)
    for name, last in values.items() if isinstance(values, Mapping) else ():
        if name in known or len(known) >= MOST_SERIES or not isinstance(last, Mapping):
            continue
        value, step = decode_number(last.get("value")), last.get("step")
        if isinstance(value, int | float) and not isinstance(value, bool):
            known[name] = MetricStats(float(value), step if isinstance(step, int) else 0).as_list()
    return known


def merge_stats(
    stored: Mapping[str, Any], new: Mapping[str, Iterable[tuple[float, float]]]
) -> dict[str, Any]:
    """The stored statistics of a run with new points, by series."""
    merged = dict(stored)
    for name, points in new.items():
        if name not in merged and len(merged) >= MOST_SERIES:
            continue
        stats = MetricStats.from_list(merged[name]) if name in merged else MetricStats()
        stats.add(points)
        merged[name] = stats.as_list()
    return merged
