"""Curves in bounded memory.

A curve keeps every point until it has too many; then neighbours are joined into buckets that keep lowest,
highest and last value. So a spike stays visible however long a run is, and following a run for weeks costs
what an hour costs.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from gpubloom.traincard.reader import RunEvent, read_all


@dataclass(slots=True)
class Bucket:
    """One or several neighbouring points."""

    first_step: int
    last_step: int
    lowest: float
    highest: float
    last: float
    last_time: float
    points: int = 1

    def join(self, later: "Bucket") -> None:
        self.last_step, self.last, self.last_time = later.last_step, later.last, later.last_time
        self.points += later.points
        # A comparison with NaN is false, so a bucket forgets NaN as soon as it knows a number.
        if later.lowest < self.lowest or self.lowest != self.lowest:
            self.lowest = later.lowest
        if later.highest > self.highest or self.highest != self.highest:
            self.highest = later.highest


class Curve:
    """One series of one attempt, in at most `most` buckets."""

    def __init__(self, most: int = 2000) -> None:
        self.most = max(2, most)
        self.buckets: list[Bucket] = []
        self._points_per_bucket = 1

    def add(self, step: int, value: float, t: float) -> None:
        point = Bucket(step, step, value, value, value, t)
        if self.buckets and self.buckets[-1].points < self._points_per_bucket:
            self.buckets[-1].join(point)
            return
        self.buckets.append(point)
        if len(self.buckets) > self.most:
            self._halve()

    def _halve(self) -> None:
        joined = self.buckets[::2]
        for first, second in zip(joined, self.buckets[1::2], strict=False):
            first.join(second)
        self.buckets = joined
        self._points_per_bucket *= 2


class Curves:
    """All series of a run, separate for each attempt, because a resumed attempt repeats steps."""

    def __init__(self, names: Iterable[str] | None = None, *, rank: int = 0, most: int = 2000) -> None:
        self._names = None if names is None else frozenset(names)
        self._rank = rank
        self._most = most
        self._curves: dict[str, dict[int, Curve]] = {}

    def add(self, event: RunEvent) -> None:
        """Takes in an event; those of other ranks, and without values, change nothing."""
        if event.rank != self._rank:
            return
        for name, value in event.series():
            if self._names is None or name in self._names:
                by_attempt = self._curves.setdefault(name, {})
                curve = by_attempt.setdefault(event.attempt, Curve(self._most))
                curve.add(event.step if event.step is not None else event.seq, value, event.t)

    def names(self) -> list[str]:
        return sorted(self._curves)

    def attempts(self, name: str) -> dict[int, Curve]:
        """The curves of a series by attempt; empty when the series was never reported."""
        return self._curves.get(name, {})


def load_curves(
    run_dir: str | os.PathLike[str], names: Iterable[str] | None = None, *, rank: int = 0, most: int = 2000
) -> Curves:
    """The series of a run as they are now."""
    curves = Curves(names, rank=rank, most=most)
    for event in read_all(run_dir, ranks=[rank]):
        curves.add(event)
    return curves
