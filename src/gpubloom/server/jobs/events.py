"""A job's changes: each gets a position, the newest are kept, and browsers are told of them as deltas.

A row of `job_events` says that something changed and which points are new; it holds neither. What changed of
the job is found by comparing its row with what was told before (`changes`), and the points are read once for
all viewers (`streams.py`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ConfigDict, Field
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import load_only

from gpubloom.server.jobs.curves import Axis
from gpubloom.server.jobs.metrics import PointRange, merged, read_new
from gpubloom.server.jobs.schemas import LiveSettings
from gpubloom.server.jobs.states import Status
from gpubloom.server.jobs.summary import (
    LastValue,
    RunSummary,
    RunWarning,
    SummaryFields,
    read_run_report,
)
from gpubloom.server.jobs.tables import JobEvent, MetricSeries, TrainingJob
from gpubloom.server.schema import MetricNumber, Schema
from gpubloom.traincard.control import Want

# A browser that missed more changes loads the job again; at a few per second, about 20 minutes.
KEPT = 5_000
_PRUNE_EVERY = 500
# A browser that missed more points is told to load the charts again.
MOST_LIVE_POINTS = 5_000


async def announce(
    session: AsyncSession, job: TrainingJob, *, points: Sequence[PointRange] = (), checkpoints: bool = False
) -> int:
    """Add a change at the job's next position. The row must have been locked by this transaction."""
    job.position += 1
    named = [each.as_dict() for each in points] or None
    session.add(JobEvent(job_id=job.id, position=job.position, points=named, checkpoints=checkpoints))
    if job.position % _PRUNE_EVERY == 0:
        await session.execute(
            delete(JobEvent).where(JobEvent.job_id == job.id, JobEvent.position <= job.position - KEPT)
        )
    return job.position


async def lock_job(session: AsyncSession, job_id: UUID) -> TrainingJob | None:
    """The job's row, locked: two changes get two positions, in the order of their commits."""
    return await session.scalar(
        select(TrainingJob)
        .where(TrainingJob.id == job_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def _without_defaults(schema: dict[str, Any]) -> None:
    # A field that is left out has not changed; it does not have its default.
    for field in schema["properties"].values():
        field.pop("default", None)


_PARTIAL = ConfigDict(json_schema_extra=_without_defaults, json_schema_serialization_defaults_required=False)


class SummaryDelta(SummaryFields):
    """The fields of a summary that changed. In `values` and `system`, null means that the key was removed."""

    model_config = _PARTIAL

    values: dict[str, LastValue | None] = Field({}, description="Series with a new value.")
    system: dict[str, MetricNumber | None] = Field({}, description="Telemetry with a changed value.")


class JobDelta(Schema):
    """The fields of `JobOut` that changed. Fields that did not change are left out."""

    model_config = _PARTIAL

    # The defaults are never sent.
    status: Status = "queued"
    want: Want = "run"
    settings: LiveSettings = LiveSettings()
    attempt: int = 0
    rows_used: int | None = None
    rows_total: int | None = None
    warnings: list[RunWarning] = Field([])
    warnings_left_out: int = 0
    error_code: str | None = None
    error_message: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    active_seconds: float = 0.0
    active_since: datetime | None = None
    summary: SummaryDelta | None = None


class LiveSeries(Schema):
    """New points of a curve, in columns, in the order in which the run reported them."""

    name: str
    rank: int
    axis: Axis
    x: list[int]
    attempt: list[int]
    time: list[float] = Field(description="Time of each point, in seconds since 1970.")
    value: list[MetricNumber]


class JobUpdate(Schema):
    """What changed in a job since the position `since`. The id of the event is the new position."""

    model_config = _PARTIAL

    since: int | None = Field(
        None, description="The position before this update. If left out, `job` contains every field."
    )
    job: JobDelta | None = Field(None, description="Left out if unchanged.")
    series: list[LiveSeries] = Field([], description="New points of curves.")
    reload: bool = Field(
        False, description="True: there are too many new points to send. Load the curves again."
    )
    checkpoints: bool = Field(False, description="True: checkpoints were saved or removed.")


def encode(update: JobUpdate) -> str:
    """Encode as JSON. Fields of the update, the job and its summary that were not set are left out."""
    included: dict[str, Any] = dict.fromkeys(update.model_fields_set, True)
    if update.job is not None:
        included["job"] = dict.fromkeys(update.job.model_fields_set, True)
        if update.job.summary is not None:
            included["job"]["summary"] = update.job.summary.model_fields_set
    return update.model_dump_json(by_alias=True, include=included)


# What `JobState` reads.
_TOLD = (
    TrainingJob.position,
    TrainingJob.status,
    TrainingJob.want,
    TrainingJob.settings,
    TrainingJob.attempt,
    TrainingJob.summary,
    TrainingJob.error_code,
    TrainingJob.error_message,
    TrainingJob.start_time,
    TrainingJob.end_time,
    TrainingJob.active_seconds,
    TrainingJob.active_since,
)


class JobState:
    """The state of a job at a position, as viewers see it."""

    def __init__(self, job: TrainingJob) -> None:
        report = read_run_report(job.summary)
        self.position = job.position
        self.summary: dict[str, Any] = {
            name: getattr(report.summary, name) for name in RunSummary.model_fields
        }
        self.fields: dict[str, Any] = {
            "status": job.status,
            "want": job.want,
            "settings": LiveSettings.stored(job.settings),
            "attempt": job.attempt,
            "rows_used": report.rows_used,
            "rows_total": report.rows_total,
            "warnings": report.warnings,
            "warnings_left_out": report.warnings_left_out,
            "error_code": job.error_code,
            "error_message": job.error_message,
            "start_time": job.start_time,
            "end_time": job.end_time,
            "active_seconds": job.active_seconds,
            "active_since": job.active_since,
        }

    def whole(self) -> JobDelta:
        """Every field."""
        return JobDelta(**self.fields, summary=SummaryDelta.model_validate(self.summary))

    def changes_since(self, before: "JobState") -> JobDelta | None:
        """The fields that differ from an earlier state."""
        changed = _changed(before.fields, self.fields)
        now, then = self.summary, before.summary
        summary = _changed(then, now)
        for name in summary.keys() & {"values", "system"}:
            gone = dict.fromkeys(then[name].keys() - now[name].keys())
            summary[name] = {**_changed(then[name], now[name]), **gone}
        if summary:
            changed["summary"] = SummaryDelta.model_validate(summary)
        return JobDelta(**changed) if changed else None


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    missing = object()
    return {name: value for name, value in after.items() if before.get(name, missing) != value}


async def read_state(session: AsyncSession, job_id: UUID) -> JobState | None:
    """The job as it is now; None: it was deleted."""
    job = await session.scalar(
        select(TrainingJob).where(TrainingJob.id == job_id).options(load_only(*_TOLD, raiseload=True))
    )
    return None if job is None else JobState(job)


class Pruned(Exception):
    """The requested changes were already pruned."""


async def read_update(session: AsyncSession, job_id: UUID, after: int, until: int) -> JobUpdate:
    """What is new between two positions besides the job's own fields, all changes in one."""
    rows = await session.execute(
        select(JobEvent.points, JobEvent.checkpoints).where(
            JobEvent.job_id == job_id, JobEvent.position > after, JobEvent.position <= until
        )
    )
    found = rows.all()
    if len(found) < until - after:
        raise Pruned
    update = JobUpdate()
    if any(checkpoints for _, checkpoints in found):
        update.checkpoints = True
    ranges = merged(PointRange.read(each) for points, _ in found for each in points or ())
    if sum(each.count for each in ranges) > MOST_LIVE_POINTS:
        update.reload = True
    elif ranges:
        update.series = await _read_series(session, ranges)
    return update


async def _read_series(session: AsyncSession, ranges: Sequence[PointRange]) -> list[LiveSeries]:
    found = await read_new(session, ranges)
    known = await session.scalars(
        select(MetricSeries).where(MetricSeries.id.in_(found)).order_by(MetricSeries.id)
    )
    return [
        LiveSeries(
            name=series.name,
            rank=series.rank,
            axis=series.axis,
            x=[point.x for point in found[series.id]],
            attempt=[point.attempt for point in found[series.id]],
            time=[point.time for point in found[series.id]],
            value=[point.value for point in found[series.id]],
        )
        for series in known
    ]
