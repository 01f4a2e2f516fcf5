"""Turns what a run says into rows. Everything here happens in the transaction that moves the cursor.

Knows events, not files: the worker reads them and passes them on.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import case, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.jobs.metrics import LEVELS, bucket_of
from gpubloom.server.jobs.tables import Axis, Checkpoint, MetricBucket, MetricPoint, MetricSeries, TrainingJob
from gpubloom.traincard import RunEvent
from gpubloom.traincard.number_encoding import encode_number

# More than a browser should be sent at once: it is told to load the charts anew instead.
MOST_LIVE_POINTS = 5_000
_ROWS_AT_ONCE = 2_000


@dataclass
class Batch:
    """The points of some events, by series."""

    points: dict[tuple[str, int, Axis], list[tuple[int, int, int, float, float]]] = field(
        default_factory=dict
    )
    count: int = 0

    def add(self, event: RunEvent) -> None:
        axis: Axis = "time" if event.kind == "system" else "step"
        x = int(event.t) if axis == "time" else event.step
        if x is None:
            return
        for name, value in event.series():
            row = (x, event.attempt, event.seq, event.t, value)
            self.points.setdefault((name, event.rank, axis), []).append(row)
            self.count += 1

    def live(self) -> dict[str, Any]:
        """What browsers are sent: columns per series."""
        if self.count > MOST_LIVE_POINTS:
            return {"reload": True}
        return {
            "series": [
                {
                    "name": name,
                    "rank": rank,
                    "axis": axis,
                    "x": [row[0] for row in rows],
                    "attempt": [row[1] for row in rows],
                    "time": [row[3] for row in rows],
                    "value": [encode_number(row[4]) for row in rows],
                }
                for (name, rank, axis), rows in self.points.items()
            ]
        }


async def store_points(session: AsyncSession, job: TrainingJob, events: Iterable[RunEvent]) -> Batch:
    """Write the points of these events, and fold them into buckets."""
    batch = Batch()
    for event in events:
        if event.kind in {"metric", "system"}:
            batch.add(event)
    if not batch.points:
        return batch
    ids = await _series_ids(session, job, list(batch.points))
    rows: list[dict[str, Any]] = []
    folded: dict[tuple[int, int, int, int], list[float]] = {}
    for key, points in batch.points.items():
        for x, attempt, seq, time, reported in points:
            value = reported if math.isfinite(reported) else None
            rows.append(
                {"series_id": ids[key], "x": x, "attempt": attempt, "seq": seq, "time": time, "value": value}
            )
            if value is not None:
                for level in LEVELS:
                    bucket_key = (ids[key], level, bucket_of(level, x), attempt)
                    _merge(folded, bucket_key, value)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        await session.execute(insert(MetricPoint), rows[start : start + _ROWS_AT_ONCE])
    await _store_buckets(session, folded)
    return batch


def _merge(
    folded: dict[tuple[int, int, int, int], list[float]], bucket_key: tuple[int, int, int, int], value: float
) -> None:
    kept = folded.get(bucket_key)
    if kept is None:
        folded[bucket_key] = [value, value, value, 1]
        return
    kept[0] = min(kept[0], value)
    kept[1] = max(kept[1], value)
    kept[2] += value
    kept[3] += 1


async def _series_ids(
    session: AsyncSession, job: TrainingJob, keys: list[tuple[str, int, Axis]]
) -> dict[tuple[str, int, Axis], int]:
    found = await session.execute(select(MetricSeries).where(MetricSeries.job_id == job.id))
    known = {(row.name, row.rank): row for row in found.scalars()}
    for name, rank, axis in keys:
        if (name, rank) not in known:
            row = MetricSeries(job_id=job.id, name=name, rank=rank, axis=axis)
            session.add(row)
            known[(name, rank)] = row
    await session.flush()
    return {key: known[key[0], key[1]].id for key in keys}


async def _store_buckets(session: AsyncSession, folded: dict[tuple[int, int, int, int], list[float]]) -> None:
    if not folded:
        return
    insert_or_merge = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    statement = insert_or_merge(MetricBucket)
    new = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=[
            MetricBucket.series_id,
            MetricBucket.level,
            MetricBucket.bucket,
            MetricBucket.attempt,
        ],
        set_={
            "low": case((new.low < MetricBucket.low, new.low), else_=MetricBucket.low),
            "high": case((new.high > MetricBucket.high, new.high), else_=MetricBucket.high),
            "total": MetricBucket.total + new.total,
            "count": MetricBucket.count + new.count,
        },
    )
    rows = [
        {
            "series_id": series_id,
            "level": level,
            "bucket": bucket,
            "attempt": attempt,
            "low": low,
            "high": high,
            "total": total,
            "count": count,
        }
        for (series_id, level, bucket, attempt), (low, high, total, count) in folded.items()
    ]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        await session.execute(statement, rows[start : start + _ROWS_AT_ONCE])


async def store_checkpoints(session: AsyncSession, job: TrainingJob, events: Iterable[RunEvent]) -> bool:
    """Write which checkpoints there are; says whether that changed."""
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
    metrics = event.fields.get("metrics")
    row.attempt = event.attempt
    row.step = event.step or 0
    row.size = event.fields.get("size")
    row.metrics = metrics if isinstance(metrics, dict) else {}
    row.best = best
    row.saved_at = datetime.fromtimestamp(event.t, UTC)
    row.removed = False
    await session.flush()
