"""Turns what a run says into rows. Storing happens in the transaction that moves the cursor.

Knows events, not files: the worker reads them and passes them on. All that needs no database is done before
the transaction (`Batch`), so that the job's row, and on SQLite the whole database, is locked for the writing
alone. Rows go to the driver as they are: making a statement of thousands takes longer than running it.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.runs.stats import merge_stats
from gpubloom.server.jobs.curves import Axis
from gpubloom.server.jobs.metrics import LEVELS, WIDTHS, PointRange, merged
from gpubloom.server.jobs.summary import CheckpointDetails
from gpubloom.server.jobs.tables import Checkpoint, MetricSeries, TrainingJob
from gpubloom.server.schema import NonFinite
from gpubloom.traincard import RunEvent
from gpubloom.traincard.number_encoding import encode_number

# Name and rank.
SeriesKey = tuple[str, int]
# x, attempt, seq, time, value, and which of NaN and the infinities it was.
Point = tuple[int, int, int, float, float | None, NonFinite | None]
Ends = tuple[int, int, int, int, int, int]

# PostgreSQL refuses a sum that is too large for a number, and the run would end as one that cannot be read.
# As many of these as a bucket counts still have a sum.
_LARGEST_SUMMAND = 1e288

_POINT_TYPES = {
    "series_id": "integer",
    "x": "bigint",
    "attempt": "integer",
    "seq": "bigint",
    "time": "double precision",
    "value": "double precision",
    "non_finite": "varchar",
}
_BUCKET_TYPES = {
    "series_id": "integer",
    "level": "smallint",
    "bucket": "bigint",
    "attempt": "integer",
    "low": "double precision",
    "high": "double precision",
    "total": "double precision",
    "count": "bigint",
}
_MERGE_BUCKETS = """
ON CONFLICT (series_id, level, bucket, attempt) DO UPDATE SET
low = CASE WHEN excluded.low < metric_buckets.low THEN excluded.low ELSE metric_buckets.low END,
high = CASE WHEN excluded.high > metric_buckets.high THEN excluded.high ELSE metric_buckets.high END,
total = metric_buckets.total + excluded.total,
count = metric_buckets.count + excluded.count
"""


class Batch:
    """The points of some events by series, their ends, and the buckets that they fall into."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self.axes: dict[SeriesKey, Axis] = {}
        self.points: dict[SeriesKey, list[Point]] = {}
        for event in events:
            if event.kind in {"metric", "system"}:
                self._add(event)
        self.ends = {key: _ends(points) for key, points in self.points.items()}
        self.buckets = {key: _bucketed(points) for key, points in self.points.items()}

    def reported(self) -> dict[str, list[tuple[float, float]]]:
        """Steps and values of rank 0's training curves, in the order in which they were reported."""
        return {
            name: [
                (x, float(value if value is not None else word or "nan"))
                for x, _, _, _, value, word in points
            ]
            for (name, rank), points in self.points.items()
            if rank == 0 and self.axes[name, rank] == "step"
        }

    def _add(self, event: RunEvent) -> None:
        axis: Axis = "time" if event.kind == "system" else "step"
        x = int(event.t) if axis == "time" else event.step
        if x is None:
            return
        attempt, rank, seq, time = event.attempt, event.rank, event.seq, event.t
        for name, value in event.series():
            try:
                number = float(value)
            except OverflowError:
                # An integer that is too large for a float.
                continue
            key = (name, rank)
            points = self.points.get(key)
            if points is None:
                points = self.points[key] = []
                self.axes[key] = axis
            if math.isfinite(number):
                points.append((x, attempt, seq, time, number, None))
            else:
                points.append((x, attempt, seq, time, None, cast("NonFinite", encode_number(number))))


def _ends(points: Sequence[Point]) -> list[Ends]:
    """Of each attempt: attempt, first and last x, first and last seq, count. Events come by attempt."""
    found: list[Ends] = []
    for attempt, group in groupby(points, key=itemgetter(1)):
        some = list(group)
        steps = [point[0] for point in some]
        found.append((attempt, min(steps), max(steps), some[0][2], some[-1][2], len(some)))
    return found


def _bucketed(points: Sequence[Point]) -> dict[tuple[int, int, int], list[float]]:
    """Points into the narrowest buckets, those into the next ones: they nest.

    By level, bucket and attempt: low, high, total, count. NaN and the infinities are counted in buckets of
    their own, whose levels are negative.
    """
    finest, width = LEVELS[0], WIDTHS[LEVELS[0]]
    narrow: dict[tuple[int, int, int], list[float]] = {}
    for x, attempt, _, _, value, _ in points:
        if value is not None:
            added = min(max(value, -_LARGEST_SUMMAND), _LARGEST_SUMMAND)
            _merge(narrow, (finest, x // width, attempt), value, value, added, 1)
        else:
            _merge(narrow, (-finest, x // width, attempt), 0.0, 0.0, 0.0, 1)
    folded = dict(narrow)
    for level in LEVELS[1:]:
        wider: dict[tuple[int, int, int], list[float]] = {}
        times, width = WIDTHS[level] // width, WIDTHS[level]
        for (narrower, bucket, attempt), (low, high, total, count) in narrow.items():
            sign = 1 if narrower > 0 else -1
            _merge(wider, (sign * level, bucket // times, attempt), low, high, total, count)
        folded.update(wider)
        narrow = wider
    return folded


def _merge(
    folded: dict[tuple[int, int, int], list[float]],
    key: tuple[int, int, int],
    low: float,
    high: float,
    total: float,
    count: float,
) -> None:
    kept = folded.get(key)
    if kept is None:
        folded[key] = [low, high, total, count]
        return
    if low < kept[0]:
        kept[0] = low
    if high > kept[1]:
        kept[1] = high
    kept[2] += total
    kept[3] += count


async def store_points(session: AsyncSession, job: TrainingJob, batch: Batch) -> list[PointRange]:
    """Write the points and their buckets; returns which rows of `training_metrics` are new."""
    if not batch.points:
        return []
    ids = await _series_ids(session, job, batch.axes)
    job.run_metrics = merge_stats(job.run_metrics or {}, batch.reported())
    points = [(ids[key], *point) for key, some in batch.points.items() for point in some]
    await _write(session, "training_metrics", _POINT_TYPES, points)
    buckets = [
        (ids[key], *bucket, *content)
        for key, folded in batch.buckets.items()
        for bucket, content in folded.items()
    ]
    if buckets:
        await _write(session, "metric_buckets", _BUCKET_TYPES, buckets, _MERGE_BUCKETS)
    return merged(
        PointRange((ids[key],), attempt, (first_x, last_x), (first_seq, last_seq), count)
        for key, ends in batch.ends.items()
        for attempt, first_x, last_x, first_seq, last_seq, count in ends
    )


async def _write(
    session: AsyncSession,
    table: str,
    types: dict[str, str],
    rows: list[tuple[Any, ...]],
    on_conflict: str = "",
) -> None:
    """One statement for all rows: SQLite runs it once for each, PostgreSQL takes them as columns."""
    connection = await session.connection()
    # The statement contains only table and column names of this module.
    into = f"INSERT INTO {table} ({', '.join(types)})"
    if connection.dialect.name == "sqlite":
        values = f"VALUES ({', '.join('?' * len(types))})"
        await connection.exec_driver_sql(f"{into} {values} {on_conflict}", rows)
        return
    arrays = ", ".join(f"%s::{kind}[]" for kind in types.values())
    statement = f"{into} SELECT * FROM unnest({arrays}) {on_conflict}"  # noqa: S608
    await connection.exec_driver_sql(statement, tuple(map(_array, zip(*rows, strict=True))))


def _array(column: tuple[Any, ...]) -> str:
    """A column as PostgreSQL reads an array; the driver takes ten times as long. Numbers and names only."""
    missing = column.count(None)
    if missing == len(column):
        column = ("NULL",) * missing
    elif missing:
        column = tuple("NULL" if value is None else value for value in column)
    return "{" + ",".join(map(str, column)) + "}"


async def _series_ids(
    session: AsyncSession, job: TrainingJob, axes: dict[SeriesKey, Axis]
) -> dict[SeriesKey, int]:
    found = await session.execute(
        select(MetricSeries.name, MetricSeries.rank, MetricSeries.id).where(MetricSeries.job_id == job.id)
    )
    known = {(name, rank): series_id for name, rank, series_id in found}
    for (name, rank), axis in axes.items():
        if (name, rank) not in known:
            added = insert(MetricSeries).values(job_id=job.id, name=name, rank=rank, axis=axis)
            known[name, rank] = (await session.execute(added.returning(MetricSeries.id))).scalar_one()
    return known


async def store_checkpoints(session: AsyncSession, job: TrainingJob, events: Iterable[RunEvent]) -> bool:
    """Store the checkpoints that exist; returns whether they changed."""
    changed = False
    for event in events:
        if event.kind == "checkpoint":
            await _store_checkpoint(session, job, event)
        elif event.kind == "checkpoint_removed":
            await session.execute(
                update(Checkpoint)
                .where(Checkpoint.job_id == job.id, Checkpoint.path == str(event.fields.get("path")))
                .values(removed=True)
            )
        else:
            continue
        changed = True
    return changed


async def _store_checkpoint(session: AsyncSession, job: TrainingJob, event: RunEvent) -> None:
    path = str(event.fields.get("path"))
    best = event.fields.get("best") is True
    if best:
        await session.execute(update(Checkpoint).where(Checkpoint.job_id == job.id).values(best=False))
    row = await session.scalar(select(Checkpoint).where(Checkpoint.job_id == job.id, Checkpoint.path == path))
    if row is None:
        row = Checkpoint(job_id=job.id, path=path)
        session.add(row)
    metrics, size = event.fields.get("metrics"), event.fields.get("size")
    row.attempt = event.attempt
    row.step = event.step or 0
    row.size = size if type(size) is int and 0 <= size < 1 << 63 else None
    row.metrics = metrics if isinstance(metrics, dict) else {}
    # The metadata of a checkpoint is not trusted: only known, small fields are stored.
    row.details = CheckpointDetails.of(event.fields.get("metadata")).model_dump(mode="json")
    row.best = best
    row.saved_at = datetime.fromtimestamp(event.t, UTC)
    row.removed = False
    await session.flush()
