"""Curves in bounded memory, and the points of events by series.

A curve keeps every point until it has too many; then neighbours are joined into buckets that keep lowest,
highest, mean and last value. So a spike stays visible however long a run is, and following a run for weeks
costs what an hour costs. Columns instead of objects: a bucket is nine numbers in nine arrays. Names and
curves are looked up once for all the points of a series, not once for each value.
"""

import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from gpubloom.traincard.condensed_files import COLUMNS
from gpubloom.traincard.names import series_name
from gpubloom.traincard.number_encoding import decode_number, encode_number
from gpubloom.traincard.reader import Reader, RunEvent

Points = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""x, value and time of each point. x is the step, or the time where the value is telemetry."""

Record = Mapping[str, Any]

MOST_BUCKETS = 1000
# What all curves of one reader or writer may hold together: about 30 MB.
_MOST_BUCKETS_TOGETHER = 400_000
_FEWEST_BUCKETS = 8
_INFINITY = math.inf
_MOST_CURVES = 50_000


def points_by_series(records: Sequence[Record]) -> dict[str, Points]:
    """The points in events of one rank and attempt, as they are on file; other kinds have none."""
    with_values = [
        record
        for record in records
        if record["kind"] in {"metric", "system"} and isinstance(record.get("values"), dict)
    ]
    alike: dict[tuple[Any, ...], list[Record]] = {}
    for record in with_values:
        alike.setdefault((record["kind"], str(record.get("tags")), *record["values"]), []).append(record)
    found: dict[str, Points] = {}
    for some in alike.values():
        x, times = [_x(record) for record in some], [record["t"] for record in some]
        columns = zip(*(record["values"].values() for record in some), strict=True)
        for name, column in zip(_names(some[0]), columns, strict=True):
            values = _floats(column)
            if name in found or values is None:
                return _one_by_one(with_values)
            found[name] = (x, values, times)
    return found


def _floats(column: tuple[Any, ...]) -> tuple[float, ...] | None:
    try:
        return tuple(map(float, column)) if set(map(type, column)) <= {float, int} else None
    except OverflowError:
        return None


def _one_by_one(records: Sequence[Record]) -> dict[str, Points]:
    """For records of several shapes that share a series, and for what is no number: in their order."""
    found: dict[str, tuple[list[float], list[float], list[float]]] = {}
    for record in records:
        x, t = _x(record), record["t"]
        for name, stored in zip(_names(record), record["values"].values(), strict=True):
            if (value := _number(stored)) is not None:
                points = found.setdefault(name, ([], [], []))
                points[0].append(x)
                points[1].append(value)
                points[2].append(t)
    return dict(found)


def _names(record: Record) -> list[str]:
    if record["kind"] == "system":
        return [f"system/{name}" for name in record["values"]]
    tags = record.get("tags")
    return [series_name(name, tags) for name in record["values"]]


def _x(record: Record) -> Any:
    # Telemetry belongs to a moment, not to a step.
    if record["kind"] == "system":
        return record["t"]
    step = record.get("step")
    return record["seq"] if step is None else step


def _number(stored: Any) -> float | None:
    value = decode_number(stored)
    return float(value) if isinstance(value, (int, float)) else None


@dataclass(slots=True)
class Bucket:
    """One or several neighbouring points. Without any finite value, lowest, highest and mean are NaN."""

    first_step: int
    last_step: int
    lowest: float
    highest: float
    mean: float
    last: float
    points: int = 1


class Curve:
    """One series of one attempt, in at most `most` buckets. Its x is the step, or for telemetry the time."""

    __slots__ = (*COLUMNS, "most", "per_bucket", "thinned")

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self.most = max(2, most)
        self.first, self.last, self.low, self.high, self.total, self.value, self.time = (
            array("d") for _ in range(7)
        )
        self.count, self.finite = array("q"), array("q")
        self.per_bucket = 1
        # What thinning made of buckets that do not change any more.
        self.thinned: Any = None

    def __len__(self) -> int:
        return len(self.count)

    def add(self, x: float, value: float, t: float) -> None:
        """Takes in one point."""
        # False for NaN and both infinities: what cannot be drawn has no lowest and highest.
        is_finite = -_INFINITY < value < _INFINITY
        count = self.count
        if count and count[-1] < self.per_bucket:
            self.last[-1] = x
            self.value[-1] = value
            self.time[-1] = t
            count[-1] += 1
            if is_finite:
                self.finite[-1] += 1
                self.total[-1] += value
                # Written so that the NaN of a bucket without a finite value is replaced.
                if not self.low[-1] <= value:
                    self.low[-1] = value
                if not self.high[-1] >= value:
                    self.high[-1] = value
            return
        known = value if is_finite else math.nan
        self._append((x, x, known, known, value if is_finite else 0.0, value, t, 1, int(is_finite)))

    def add_many(self, points: Points) -> None:
        """Takes in many points, as if they came one by one, in a fraction of the time."""
        x, values, times = points
        begin, end = 0, len(values)
        while begin < end:
            room = self.per_bucket - self.count[-1] if self.count else 0
            if room <= 0 and self.per_bucket > 1:
                self.add(x[begin], values[begin], times[begin])
                begin += 1
                continue
            stop = min(end, begin + (room if room > 0 else self.most + 1 - len(self)))
            some = values[begin:stop]
            if not -_INFINITY < (total := sum(some)) < _INFINITY:
                for index in range(begin, stop):
                    self.add(x[index], values[index], times[index])
            elif room > 0:
                self._fill(x[stop - 1], some, total, times[stop - 1])
            else:
                self._append_points(x[begin:stop], some, times[begin:stop])
            begin = stop

    def _fill(self, x: float, values: Sequence[float], total: float, t: float) -> None:
        """Into the newest bucket, which has room for them; all of them are finite."""
        self.last[-1], self.value[-1], self.time[-1] = x, values[-1], t
        self.count[-1] += len(values)
        self.finite[-1] += len(values)
        self.total[-1] += total
        low, high = min(values), max(values)
        if not self.low[-1] <= low:
            self.low[-1] = low
        if not self.high[-1] >= high:
            self.high[-1] = high

    def _append_points(self, x: Sequence[float], values: Sequence[float], times: Sequence[float]) -> None:
        """One bucket each, at most one more than there may be; all of them are finite."""
        for column, numbers in (
            (self.first, x),
            (self.last, x),
            (self.low, values),
            (self.high, values),
            (self.total, values),
            (self.value, values),
            (self.time, times),
        ):
            column.extend(numbers)
        self.count.extend(ones := [1] * len(values))
        self.finite.extend(ones)
        if len(self) > self.most:
            self._halve()

    def _make_room_for(self, points: int) -> None:
        while self.per_bucket < points:
            self.per_bucket *= 2

    def shrink(self, most: int) -> None:
        """From now on at most so many buckets."""
        self.most = max(2, most)
        while len(self) > self.most:
            self._halve()

    def _append(self, bucket: Sequence[Any]) -> None:
        first, last, low, high, total, value, time, count, finite = bucket
        self.first.append(first)
        self.last.append(last)
        self.low.append(low)
        self.high.append(high)
        self.total.append(total)
        self.value.append(value)
        self.time.append(time)
        self.count.append(count)
        self.finite.append(finite)
        if len(self.count) > self.most:
            self._halve()

    def _halve(self) -> None:
        odd = len(self) % 2
        before = {name: getattr(self, name) for name in COLUMNS}
        if odd:
            before = {name: column[:-1] for name, column in before.items()}
            newest = [getattr(self, name)[-1] for name in COLUMNS]
        pairs = {name: (column[::2], column[1::2]) for name, column in before.items()}
        self.first = pairs["first"][0]
        self.last, self.value, self.time = (pairs[name][1] for name in ("last", "value", "time"))
        self.low = array("d", _of_pairs(min, *pairs["low"]))
        self.high = array("d", _of_pairs(max, *pairs["high"]))
        self.total = array("d", map(add, *pairs["total"]))
        self.count = array("q", map(add, *pairs["count"]))
        self.finite = array("q", map(add, *pairs["finite"]))
        self.per_bucket *= 2
        if odd:
            self._append(newest)

    def copy(self) -> "Curve":
        copy = Curve(self.most)
        for column in COLUMNS:
            setattr(copy, column, getattr(self, column)[:])
        copy.per_bucket = self.per_bucket
        return copy

    def condensed(self, most: int = MOST_BUCKETS) -> "Curve":
        """The same in at most so many buckets: what is judged must not depend on how finely it was read."""
        if len(self) <= most:
            return self
        copy = self.copy()
        copy.shrink(most)
        return copy

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The buckets, in the order of COLUMNS."""
        return zip(*(getattr(self, column) for column in COLUMNS), strict=True)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets as objects, oldest first."""
        return [
            Bucket(int(first), int(last), low, high, total / finite if finite else math.nan, value, count)
            for first, last, low, high, total, value, _, count, finite in self.rows()
        ]

    def columns(self) -> dict[str, list[Any]]:
        """The buckets as JSON can hold them."""
        stored: dict[str, list[Any]] = {name: getattr(self, name).tolist() for name in ("count", "finite")}
        for name in ("first", "last", "value"):
            stored[name] = [_short(number) for number in getattr(self, name)]
        # Nine digits are more than a chart shows, and read in half the time of seventeen.
        for name in ("low", "high", "total"):
            stored[name] = [_short(float(f"{number:.9g}")) for number in getattr(self, name)]
        stored["time"] = [_short(round(number, 4)) for number in self.time]
        return stored

    def add_columns(self, stored: Mapping[str, "array[Any]"]) -> None:
        """Takes in the stored buckets of a later part of the same series (`condensed_files`)."""
        for name in COLUMNS:
            getattr(self, name).extend(stored[name])
        self._make_room_for(max(self.count, default=1))
        self.shrink(self.most)


def _of_pairs(
    choose: Callable[[float, float], float], one: Sequence[float], other: Sequence[float]
) -> Iterable[float]:
    """The lower, or higher, of each pair; a bucket without a finite value (NaN) has no say."""
    # A sum is NaN as soon as one of its numbers is.
    if (total := sum(one) + sum(other)) == total:
        return map(choose, one, other)
    return (
        after if before != before else before if after != after else choose(before, after)
        for before, after in zip(one, other, strict=True)
    )


def _short(number: float) -> Any:
    # Whole numbers without ".0": steps are many.
    return int(number) if number.is_integer() and abs(number) < 1e15 else encode_number(number)


class Curves:
    """Series by rank and attempt, because a resumed attempt repeats steps. Bounded, however many they are."""

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        rank: int | None = 0,
        most: int = MOST_BUCKETS,
        most_together: int = _MOST_BUCKETS_TOGETHER,
    ) -> None:
        self._names = None if names is None else frozenset(names)
        self._rank = rank
        self._most = max(2, most)
        self._most_together = most_together
        self._count = 0
        self._left_out: set[int] = set()
        self._left_out_before = 0
        self._curves: dict[int, dict[str, dict[int, Curve]]] = {}

    def add(self, event: RunEvent) -> None:
        """Takes in an event; those of ranks that were not asked for, and without values, change nothing."""
        if event.kind != "condensed":
            self.add_points(event.rank, event.attempt, points_by_series([event.fields]))
        elif self._rank is None or event.rank == self._rank:
            self._left_out_before += int(event.fields.get("series_left_out") or 0)
            for name, stored in event.fields["series"].items():
                if (curve := self.curve(event.rank, name, event.attempt)) is not None:
                    curve.add_columns(stored)

    def add_points(self, rank: int, attempt: int, found: Mapping[str, Points]) -> None:
        """Takes in what `points_by_series` found in events of one rank and attempt."""
        if self._rank is None or rank == self._rank:
            for name, points in found.items():
                if (curve := self.curve(rank, name, attempt)) is not None:
                    curve.add_many(points)

    def curve(self, rank: int, name: str, attempt: int) -> Curve | None:
        """The curve to add to, made when it is new; None when it is not asked for, or one too many."""
        if self._names is not None and name not in self._names:
            return None
        curve = self.attempts(name, rank).get(attempt)
        if curve is None:
            if self._count >= _MOST_CURVES:
                # Counted once each, as far as that can be known in bounded memory.
                if len(self._left_out) < _MOST_CURVES:
                    self._left_out.add(hash((rank, name, attempt)))
                return None
            self._count += 1
            if self._count * self._most > self._most_together and self._most > _FEWEST_BUCKETS:
                self._most = max(_FEWEST_BUCKETS, self._most // 2)
                for old in self.all():
                    old.shrink(self._most)
            curve = Curve(self._most)
            self._curves.setdefault(rank, {}).setdefault(name, {})[attempt] = curve
        return curve

    @property
    def left_out(self) -> int:
        """How many curves were too many."""
        return self._left_out_before + len(self._left_out)

    def all(self) -> Iterator[Curve]:
        for by_name in self._curves.values():
            for by_attempt in by_name.values():
                yield from by_attempt.values()

    def copy(self) -> "Curves":
        copy = Curves(self._names, rank=self._rank, most=self._most, most_together=self._most_together)
        copy._count, copy._left_out_before = self._count, self.left_out
        copy._curves = {
            rank: {
                name: {attempt: curve.copy() for attempt, curve in by_attempt.items()}
                for name, by_attempt in by_name.items()
            }
            for rank, by_name in self._curves.items()
        }
        return copy

    def ranks(self) -> list[int]:
        return sorted(self._curves)

    def names(self, rank: int = 0) -> list[str]:
        return sorted(name for name, curves in self._curves.get(rank, {}).items() if curves)

    def attempts(self, name: str, rank: int = 0) -> dict[int, Curve]:
        """The curves of a series by attempt; empty when the series was never reported."""
        return self._curves.get(rank, {}).get(name, {})


def load_curves(
    run_dir: str | os.PathLike[str],
    names: Iterable[str] | None = None,
    *,
    rank: int = 0,
    most: int = MOST_BUCKETS,
) -> Curves:
    """The series of a run as they are now, from the condensed history where there is one."""
    curves = Curves(names, rank=rank, most=most)
    reader = Reader(run_dir, ranks=[rank], condensed=True)
    while events := reader.read_new():
        for event in events:
            curves.add(event)
    return curves
