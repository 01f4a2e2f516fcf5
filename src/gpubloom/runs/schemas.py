"""The run list as JSON. The server answers with these, and so does `bloom ui` over a folder."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gpubloom.plan.comparison import Outcome as PlainOutcome
from gpubloom.runs.overlay import GroupCurve
from gpubloom.runs.table import Row, Run, RunTable


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class RunRow(_Answer):
    """A run, or several runs that differ only in their seed."""

    id: str = Field(description="The id of the run. A row of several runs has an id of its own.")
    run_ids: list[str] = Field(description="The runs of this row.")
    name: str
    project_id: str | None
    project: str
    kind: str = Field(description="train, script, or run: a run that was sent here.")
    status: str = Field(description="The status of the run. Of several: the one that needs attention most.")
    statuses: dict[str, int] = Field(description="Number of runs in each status.")
    source: str = Field(description='"local", the provider, or the machine that sent the run.')
    seed: JsonValue
    tags: list[str]
    notes: str
    error: str | None = Field(description="Why the run failed, in one sentence.")
    step: int | None
    total_steps: int | None
    eta_seconds: float | None
    created: float = Field(description="Seconds since 1970.")
    seen: float | None = Field(description="Time of the last event, in seconds since 1970.")
    cells: dict[str, JsonValue] = Field(description="The value of each column. Of several runs: the mean.")
    spread: dict[str, float] = Field(description="Standard deviation over the runs of the row, by column.")
    members: list["RunRow"] = Field(description="Only for a row of several runs: one row for each.")


class RunSection(_Answer):
    """Rows with the same values in the columns of the grouping."""

    title: str
    runs: int
    rows: list[RunRow]


class RunSource(_Answer):
    name: str
    runs: int
    seen: float | None = Field(description="When this source last sent something, in seconds since 1970.")


class RunList(_Answer):
    """A page of the run list."""

    total: int = Field(description="Number of runs without the filter.")
    matched: int = Field(description="Number of runs that match the filter.")
    rows: int = Field(description="Number of rows on all pages.")
    columns: list[str] = Field(description="The full names of the columns of this answer.")
    sections: list[RunSection]
    sources: list[RunSource] = Field(description="Where the matching runs come from.")
    statuses: dict[str, int]
    config_columns: list[str] = Field(description="Config fields that can be columns, most common first.")
    metric_columns: list[str] = Field(
        description="Metrics that can be columns: the name alone is the last value; with .min, .max or "
        ".mean it is the lowest, highest or mean value."
    )


_ATTENTION = ("failed", "killed", "running", "provisioning", "queued", "paused", "cancelled", "completed")
_MOST_OFFERED = 400


def run_list(table: RunTable, runs: Iterable[Run]) -> RunList:
    """A page of the list, from its rows. `runs`: all of them, for the sources."""
    seen: dict[str, float] = {}
    for run in runs:
        moment = run.seen or run.created
        seen[run.source] = max(moment, seen.get(run.source, moment))
    return RunList(
        total=table.total,
        matched=table.matched,
        rows=table.row_count,
        columns=table.shown,
        sections=[
            RunSection(title=section.title, runs=section.runs, rows=[_row(row) for row in section.rows])
            for section in table.sections
        ],
        sources=[
            RunSource(name=name, runs=count, seen=seen.get(name)) for name, count in table.sources.items()
        ],
        statuses=table.statuses,
        config_columns=table.columns.config[:_MOST_OFFERED],
        metric_columns=table.columns.metrics[:_MOST_OFFERED],
    )


def _row(row: Row) -> RunRow:
    first = row.runs[0]
    statuses = row.statuses
    status = min(statuses, key=lambda name: _ATTENTION.index(name) if name in _ATTENTION else 99)
    of_status = next(run for run in row.runs if run.status == status)
    tags = list(dict.fromkeys(tag for run in row.runs for tag in run.tags))
    # Written by hand: validating some thousand rows takes longer than reading them.
    return RunRow.model_construct(
        id=row.id,
        run_ids=[run.id for run in row.runs],
        name=row.name,
        project_id=first.project_id,
        project=first.project,
        kind=first.kind,
        status=status,
        statuses=statuses,
        source=first.source if all(run.source == first.source for run in row.runs) else "mixed",
        seed=first.seed if len(row.runs) == 1 else None,
        tags=tags,
        notes=first.notes if len(row.runs) == 1 else "",
        error=of_status.error,
        step=of_status.step,
        total_steps=of_status.total_steps,
        eta_seconds=of_status.eta_seconds,
        created=max(run.created for run in row.runs),
        seen=max((run.seen for run in row.runs if run.seen is not None), default=None),
        cells=row.cells,
        spread=row.spread,
        members=[_row(member) for member in row.members],
    )


class Difference(_Answer):
    """A config field or fact, with one value per run in the order of the runs."""

    path: str
    values: list[JsonValue]


class Outcome(_Answer):
    """The result of a run. For each loss series: the last value and the best value."""

    run_id: str
    name: str
    status: str
    final: dict[str, float | str]
    best_eval_loss: float | None
    best_step: int | None
    steps: int | None
    tokens: float | None
    tokens_per_second: float | None
    seconds: float | None

    @classmethod
    def of(cls, run: Run, found: PlainOutcome, best_step: float | None) -> "Outcome":
        return cls(
            run_id=run.id,
            name=run.name,
            status=run.status,
            best_step=None if best_step is None else int(best_step),
            **vars(found),
        )


class Comparison(_Answer):
    """Runs side by side."""

    outcomes: list[Outcome]
    differences: list[Difference] = Field(description="Config fields that differ.")
    fact_differences: list[Difference] = Field(
        description="Facts that differ, such as the GPU or a version. They are not part of the config."
    )
    equal: list[Difference] = Field(description="Config fields that are the same in all runs.")


class FailedCurve(_Answer):
    """The curve of a run that failed. It is not part of the mean."""

    run_id: str
    name: str
    x: list[float]
    y: list[float]


class OverlayGroup(_Answer):
    """The mean over the runs of a group, in columns, and how far the runs lie apart."""

    runs: int = Field(description="Number of runs in the mean.")
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    deviation: list[float]
    failed: list[FailedCurve]

    @classmethod
    def of(cls, curve: GroupCurve) -> "OverlayGroup":
        fields: dict[str, Any] = {
            name: getattr(curve, name) for name in ("runs", "x", "mean", "low", "high", "deviation")
        }
        failed = [
            FailedCurve.model_construct(run_id=each.run_id, name=each.name, x=list(each.x), y=list(each.y))
            for each in curve.failed
        ]
        return cls.model_construct(**fields, failed=failed)


class Overlay(_Answer):
    """One metric of several groups of runs, in the order of the request."""

    series: str
    groups: list[OverlayGroup]
