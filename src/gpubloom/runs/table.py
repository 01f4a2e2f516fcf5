"""The run list: which columns there are, which runs match a filter, how they are grouped, sorted and shown.

Columns are facts of every run (`status`, `created`, `cost` …), fields of configs by their path
(`lora.rank`; `rank` alone is enough where only one path ends so) and metrics (`eval/loss` is the last value,
`eval/loss.min` the lowest).

Runs that differ in nothing but their seed form one row: the mean over those that did not fail, and the
sample standard deviation.
"""

import difflib
import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpubloom.errors import InputError
from gpubloom.plan.comparison import flat_fields
from gpubloom.runs.query import Field, FieldKind, compile_query
from gpubloom.runs.stats import PARTS, MetricStats
from gpubloom.traincard.number_encoding import NON_FINITE, encode_number

SEEDS = "seeds"
DEFAULT_COLUMNS = (
    "learning_rate",
    "eval/loss.min",
    "train/loss",
    "train/tokens_per_second.mean",
    "time",
    "cost",
)
_FAILED = frozenset({"failed", "killed", "cancelled", "interrupted", "preempted"})
_SEED_NAMES = frozenset({"seed", "data_seed", "random_seed"})
_MOST_COLUMNS = 40
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Run:
    """One run as the list knows it. `stats` holds MetricStats by series, as lists."""

    id: str
    name: str
    status: str
    created: float
    project: str = ""
    project_id: str | None = None
    kind: str = "run"
    source: str = ""
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    seen: float | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_seconds: float | None = None
    attempt: int = 0
    cost: float | None = None
    error: str | None = None
    tags: Sequence[str] = ()
    notes: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def seed(self) -> Any:
        """The seed of the run; None: its config names none."""
        return next((value for path, value in self._settings.items() if _is_seed(path)), None)

    @cached_property
    def experiment(self) -> str:
        """The same for runs that differ in nothing but their seed. A run without a seed stands alone."""
        if self.seed is None:
            return f"run:{self.id}"
        rest = {path: value for path, value in self._settings.items() if not _is_seed(path)}
        text = json.dumps([self.project, rest], sort_keys=True, default=str)
        return f"seeds:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def _settings(self) -> Mapping[str, Any]:
        return self.config or self.facts

    @property
    def has_failed(self) -> bool:
        return self.status in _FAILED

    def metric(self, name: str, part: str) -> float | None:
        """One figure of a metric: its last, min, max or mean."""
        stored = self.stats.get(name)
        if stored is None:
            return None
        value: float | None = getattr(MetricStats.from_list(stored), part)
        return value


def _is_seed(path: str) -> bool:
    return path.rpartition(".")[2] in _SEED_NAMES


def fields_of_facts(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run described of itself, flat: its config, if it named one, and the other facts."""
    config = facts.get("config")
    rest = {name: value for name, value in facts.items() if name != "config"}
    return flat_fields(config) if isinstance(config, Mapping) else {}, flat_fields(rest)


_BUILT_IN: dict[str, tuple[FieldKind, Callable[[Run], Any]]] = {
    "name": ("plain", lambda run: run.name),
    "id": ("plain", lambda run: run.id),
    "status": ("plain", lambda run: run.status),
    "project": ("plain", lambda run: run.project),
    "project_id": ("plain", lambda run: run.project_id),
    "kind": ("plain", lambda run: run.kind),
    "source": ("plain", lambda run: run.source),
    "tags": ("list", lambda run: run.tags),
    "notes": ("plain", lambda run: run.notes or None),
    "error": ("plain", lambda run: run.error),
    "created": ("date", lambda run: run.created),
    "started": ("date", lambda run: run.started),
    "ended": ("date", lambda run: run.ended),
    "time": ("duration", lambda run: run.seconds),
    "step": ("plain", lambda run: run.step),
    "attempt": ("plain", lambda run: run.attempt),
    "cost": ("plain", lambda run: run.cost),
    "seed": ("plain", lambda run: run.seed),
}
_ALIASES = {"lr": "learning_rate", "tag": "tags", "duration": "time", "note": "notes", "steps": "step"}


class Columns:
    """The columns that some runs have, found by the names that people write."""

    def __init__(self, runs: Iterable[Run]) -> None:
        config: Counter[str] = Counter()
        metrics: Counter[str] = Counter()
        self._is_empty = True
        for run in runs:
            self._is_empty = False
            config.update(run.config.keys())
            config.update(run.facts.keys() - run.config.keys())
            metrics.update(run.stats.keys())
        self.config = [name for name, _ in config.most_common()]
        self.metrics = sorted(metrics)
        self._config = set(self.config)
        self._by_end: dict[str, list[str]] = {}
        for path in self.config:
            parts = path.split(".")
            for start in range(1, len(parts)):
                self._by_end.setdefault(".".join(parts[start:]).lower(), []).append(path)

    def find(self, name: str) -> Field | None:
        """The column of a name; None: no run has one. Without runs, every name is a column without values."""
        found = self._exact(name) or self._exact(_ALIASES.get(name.lower(), name))
        if found is None:
            paths = self._by_end.get(_ALIASES.get(name.lower(), name).lower(), [])
            found = self._exact(paths[0]) if len(paths) == 1 else None
        if found is None and self._is_empty:
            return Field(name, "plain", lambda run: None)
        return found

    def _exact(self, name: str) -> Field | None:
        if (built_in := _BUILT_IN.get(name.lower())) is not None:
            return Field(name.lower(), *built_in)
        if name.startswith("config."):
            name = name.removeprefix("config.") if name not in self._config else name
        if name in self._config:
            return Field(name, "plain", lambda run: run.config.get(name, run.facts.get(name)))
        series, part = name, "last"
        if series not in self.metrics:
            series, _, part = name.rpartition(".")
        if series in self.metrics and part in PARTS:
            return Field(name, "plain", lambda run: run.metric(series, part))
        return None

    def similar(self, name: str) -> list[str]:
        """Columns whose names look like this one."""
        ends = self._by_end.get(name.lower(), [])
        known = [*_BUILT_IN, *_ALIASES, *self.config, *self.metrics]
        return ends[:3] or difflib.get_close_matches(name, known, n=2)

    def missing(self, name: str) -> str:
        """A sentence for a column that no run has."""
        similar = self.similar(name)
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        return f"No run has a column {name}.{hint}"


@dataclass(frozen=True)
class Row:
    """A run, or several that differ in their seed. `spread`: standard deviations, by column.

    `runs`: whose row it is. `members`: their rows, of a row of several.
    """

    id: str
    name: str
    runs: Sequence[Run]
    cells: dict[str, Any]
    spread: dict[str, float]
    members: "Sequence[Row]" = ()

    @property
    def statuses(self) -> dict[str, int]:
        return dict(Counter(run.status for run in self.runs))


@dataclass(frozen=True)
class Section:
    """Rows that have the same values in the columns of the grouping."""

    title: str
    runs: int
    rows: list[Row]


@dataclass(frozen=True)
class View:
    """What a list shows: a filter, columns, grouping and order. `sort`: columns, descending with a -."""

    query: str = ""
    columns: Sequence[str] = DEFAULT_COLUMNS
    group: Sequence[str] = (SEEDS,)
    sort: str = "-created"


@dataclass(frozen=True)
class RunTable:
    """The rows of a view. `row_count` counts all rows, `sections` hold a page of them."""

    total: int
    matched: int
    row_count: int
    sections: list[Section]
    columns: Columns
    shown: list[str]
    sources: dict[str, int]
    statuses: dict[str, int]


def tabulate(
    runs: Sequence[Run], view: View, *, limit: int = 200, offset: int = 0, source: str | None = None
) -> RunTable:
    """The rows of a view. QueryError: its filter cannot be read. InputError: it names an unknown column."""
    columns = Columns(runs)
    matches = compile_query(view.query, columns, search=_searched)
    matching = [run for run in runs if matches(run)]
    sources = Counter(run.source for run in matching)
    if source is not None:
        matching = [run for run in matching if run.source == source]
    shown = _shown_columns(view, columns)
    by_seed = SEEDS in view.group
    rows = _rows(matching, shown, by_seed=by_seed)
    rows = _sorted(rows, view, columns)
    sections = _sections(rows, view, columns)
    return RunTable(
        total=len(runs),
        matched=len(matching),
        row_count=len(rows),
        sections=_page(sections, limit, offset),
        columns=columns,
        shown=[field.name for field in shown],
        sources=dict(sources.most_common()),
        statuses=dict(Counter(run.status for run in matching)),
    )


def _searched(run: Run) -> str:
    return "\n".join((run.name, run.project, run.notes, *run.tags))


def _shown_columns(view: View, columns: Columns) -> list[Field]:
    if len(view.columns) > _MOST_COLUMNS:
        raise InputError("too_many_columns", f"Choose at most {_MOST_COLUMNS} columns.")
    # A column that no run has is left out: a view outlives the runs for which it was made.
    found = {}
    for name in view.columns:
        if (column := columns.find(name)) is not None:
            found[column.name] = column
    return list(found.values())


def _rows(runs: Sequence[Run], shown: Sequence[Field], *, by_seed: bool) -> list[Row]:
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(run.experiment if by_seed else run.id, []).append(run)
    rows = []
    for key, members in together.items():
        # The same experiment with the same seed is a repetition, not a second seed.
        if len({str(run.seed) for run in members}) > 1:
            rows.append(_row(key, members, shown))
        else:
            rows += [_row(run.id, [run], shown) for run in members]
    return rows


def _row(key: str, runs: list[Run], shown: Sequence[Field]) -> Row:
    if len(runs) == 1:
        run = runs[0]
        return Row(run.id, run.name, runs, {column.name: _cell(column.read(run)) for column in shown}, {})
    runs = sorted(runs, key=lambda run: (str(type(run.seed)), run.seed, run.created))
    # Left out of the mean, so that it says something about runs that came to their end.
    counted = [run for run in runs if not run.has_failed] or runs
    cells: dict[str, Any] = {}
    spread: dict[str, float] = {}
    for column in shown:
        values = [column.read(run) for run in counted]
        cells[column.name], deviation = _summary(column, values)
        if deviation is not None:
            spread[column.name] = deviation
    members = [
        Row(run.id, run.name, [run], {column.name: _cell(column.read(run)) for column in shown}, {})
        for run in runs
    ]
    return Row(key, _common_name(runs), runs, cells, spread, members)


def _summary(column: Field, values: list[Any]) -> tuple[Any, float | None]:
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    if all(value == known[0] for value in known) and len(known) == len(values):
        return _cell(known[0]), None
    numbers = [float(value) for value in known if _is_number(value)]
    if len(numbers) < len(known) or column.kind == "date" or column.name == "seed":
        return "mixed", None
    finite = [number for number in numbers if math.isfinite(number)]
    if not finite:
        return _cell(numbers[0]), None
    deviation = statistics.stdev(finite) if len(finite) > 1 else None
    return statistics.fmean(finite), deviation


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return encode_number(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)[:_LONGEST_TEXT] or None
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)[:_LONGEST_TEXT]
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _common_name(runs: Sequence[Run]) -> str:
    """The name that runs of one experiment share: without the end that tells them apart."""
    first = min(run.name for run in runs)
    last = max(run.name for run in runs)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    if first == last:
        return first
    common = first[:length].rstrip(" -_,.=:#(")
    common = common.removesuffix("seed").removesuffix("s").rstrip(" -_,.=:#(")
    return common or first


def _sorted(rows: list[Row], view: View, columns: Columns) -> list[Row]:
    # Sorted by the last column first: sorting keeps the order of equal rows.
    for name in reversed([part.strip() for part in view.sort.split(",") if part.strip()]):
        descending = name.startswith("-")
        column = columns.find(name.removeprefix("-"))
        if column is None:
            continue
        keyed = [(_sort_key(row, column), row) for row in rows]
        known = [pair for pair in keyed if pair[0] is not None]
        known.sort(key=lambda pair: pair[0], reverse=descending)
        # Without a value: last, in either direction.
        rows = [row for _, row in known] + [row for key, row in keyed if key is None]
    return rows


def _sort_key(row: Row, column: Field) -> Any:
    values = [column.read(run) for run in row.runs if not run.has_failed or len(row.runs) == 1]
    values = values or [column.read(run) for run in row.runs]
    if column.kind == "date":
        known = [value for value in values if value is not None]
        return (0, max(known), "") if known else None
    value = _summary(column, values)[0]
    if value is None or value in NON_FINITE:
        return None
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value).casefold())


def _sections(rows: list[Row], view: View, columns: Columns) -> list[Section]:
    names = [name for name in view.group if name != SEEDS]
    if not names:
        return [Section("", sum(len(row.runs) for row in rows), rows)]
    chosen = [column for name in names if (column := columns.find(name)) is not None]
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        parts = [_summary(column, [column.read(run) for run in row.runs])[0] for column in chosen]
        title = " · ".join(
            _title(column, part, plain=len(chosen) == 1) for column, part in zip(chosen, parts, strict=True)
        )
        grouped.setdefault(title, []).append(row)
    return [
        Section(title, sum(len(row.runs) for row in members), members) for title, members in grouped.items()
    ]


def _title(column: Field, value: Any, *, plain: bool) -> str:
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if plain and column.name in {"project", "source", "status"} else f"{column.name} {text}"


def _page(sections: list[Section], limit: int, offset: int) -> list[Section]:
    page, skipped, left = [], offset, limit
    for section in sections:
        rows = section.rows[skipped:]
        skipped = max(0, skipped - len(section.rows))
        if rows[:left]:
            page.append(Section(section.title, section.runs, rows[:left]))
            left -= len(rows[:left])
    return page
