"""Counts that grow with a file's variety, never with its length: columns, lengths, the longest rows."""

import heapq
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

_MOST_COLUMNS = 1_000
_LONGEST_SHOWN = 5
# Two bars to an octave: 0, 1, 2, 3, 4, 6, 8, 12 …
_EDGES = (0, 1, *(edge for power in range(1, 33) for edge in (1 << power, 3 << (power - 1))))

_TYPES: dict[type, str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true/false",
    list: "list",
    dict: "object",
    bytes: "binary",
    datetime: "time",
    date: "time",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with the share of rows that have something in it, and what it is."""

    name: str
    filled: int
    missing: int
    types: dict[str, int]


@dataclass
class ColumnCounter:
    """Counts what stands in which column."""

    rows: int = 0
    left_out: bool = False
    _filled: Counter[str] = field(default_factory=Counter)
    _types: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, values: dict[str, Any]) -> None:
        self.rows += 1
        for name, value in values.items():
            types = self._types.get(name)
            if types is None:
                if len(self._types) == _MOST_COLUMNS:
                    self.left_out = True
                    continue
                types = self._types[name] = Counter()
            if value is not None:
                types[_TYPES.get(type(value)) or "other"] += 1
                if value != "":
                    self._filled[name] += 1

    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(name, self._filled[name], self.rows - self._filled[name], dict(types.most_common()))
            for name, types in self._types.items()
        )


@dataclass(frozen=True, slots=True)
class Bar:
    """How many rows have a length from (inclusive) to (exclusive)."""

    begin: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the rows are, in tokens, or in characters where there is no tokenizer."""

    unit: str
    total: int
    trained: int
    # Row number and length.
    longest: tuple[tuple[int, int], ...]
    # Half, and 95 of a hundred, are shorter than these.
    half_below: int
    most_below: int
    histogram: tuple[Bar, ...]
    too_long: int
    first_too_long: tuple[int, ...]


@dataclass
class LengthCounter:
    """Takes one length after the other."""

    unit: str
    limit: int | None = None
    keep: int = 20
    _counts: list[int] = field(default_factory=lambda: [0] * len(_EDGES))
    _total: int = 0
    _trained: int = 0
    _longest: list[tuple[int, int]] = field(default_factory=list)
    _too_long: int = 0
    _first_too_long: list[int] = field(default_factory=list)

    def add(self, row: int, length: int, trained: int) -> None:
        self._counts[bisect_right(_EDGES, length) - 1] += 1
        self._total += length
        self._trained += trained
        # The row is negative so that of equal lengths the first row stays.
        heapq.heappush(self._longest, (length, -row))
        if len(self._longest) > _LONGEST_SHOWN:
            heapq.heappop(self._longest)
        if self.limit is not None and length > self.limit:
            self._too_long += 1
            if len(self._first_too_long) < self.keep:
                self._first_too_long.append(row)

    def result(self) -> Lengths:
        bars = [
            Bar(_EDGES[index], _EDGES[index + 1] if index + 1 < len(_EDGES) else 2**63, count)
            for index, count in enumerate(self._counts)
        ]
        used = [index for index, count in enumerate(self._counts) if count]
        histogram = tuple(bars[used[0] : used[-1] + 1]) if used else ()
        return Lengths(
            self.unit,
            self._total,
            self._trained,
            tuple((-row, length) for length, row in sorted(self._longest, reverse=True)),
            _below(histogram, 0.5),
            _below(histogram, 0.95),
            histogram,
            self._too_long,
            tuple(self._first_too_long),
        )


def _below(bars: tuple[Bar, ...], share: float) -> int:
    wanted = share * sum(bar.rows for bar in bars)
    seen = 0
    for bar in bars:
        seen += bar.rows
        if seen >= wanted:
            return bar.end
    return 0
