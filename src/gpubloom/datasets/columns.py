"""Columns: what stands in which column, where a column path leads, and which columns nobody uses.

A path such as `instances[0].output` leads into the lists and objects of a column. A column that has this very
name comes first. Tables hold lists and objects as JSON; a path leads into these too.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final

_MOST_COLUMNS = 1_000
_MOST_PATHS = 200
_DEEPEST_PATH = 6
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
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")


class Missing:
    """The type of MISSING."""


# What a path leads to in a row that does not have it; None is a value.
MISSING: Final = Missing()


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """What a column, or a path into one, holds in a row; MISSING where the row has nothing there."""
    if path in values:
        return values[path]
    value: Any = values
    for step in _steps(path):
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return MISSING
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return MISSING
            value = value[step]
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
        else:
            return MISSING
    return value


@lru_cache(1_024)
def _steps(path: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            # A name of its own, with signs that mean nothing here.
            return (path,)
        steps.append(found[1] if found[2] is None else int(found[2]))
        at = found.end()
    return tuple(steps)


def root_of(path: str, columns: "Mapping[str, Any] | set[str]") -> str:
    """The column that a path begins in."""
    return path if path in columns else str(_steps(path)[0])


def nested_paths(values: Mapping[str, Any]) -> Iterator[str]:
    """The paths to texts and numbers inside of the columns of a row; of a list, into its first item."""

    def walk(value: Any, path: str, depth: int) -> Iterator[str]:
        if depth > _DEEPEST_PATH:
            return
        if isinstance(value, Mapping):
            for name, inner in value.items():
                # A name with signs that paths use could not be found again.
                if not set(".[]") & set(str(name)):
                    yield from walk(inner, f"{path}.{name}", depth + 1)
        elif isinstance(value, list):
            if value:
                yield from walk(value[0], f"{path}[0]", depth + 1)
        elif depth and value is not None:
            yield path

    for count, path in enumerate(each for name, value in values.items() for each in walk(value, name, 0)):
        if count == _MOST_PATHS:
            return
        yield path


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

    @property
    def filled_names(self) -> tuple[str, ...]:
        """Columns that hold something in at least one row."""
        return tuple(name for name in self._types if self._filled[name])


def unused_columns(names: tuple[str, ...], mapped: Mapping[str, str]) -> tuple[str, ...]:
    """The columns with content that no field of a mapping reads."""
    used = {root_of(path, set(names)) for path in mapped.values()}
    return tuple(name for name in names if name not in used)
