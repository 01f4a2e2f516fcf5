"""Reads a job's curves for a chart: the asked range, thinned to means between their lowest and highest.

Long curves are drawn from buckets that `ingest` fills while the run goes on; their widths are defined here.
What is new since a chart was drawn is read by `PointRange`: an event of a job names points, it holds none.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.jobs.curves import Clock, Curve, LastPoint, Sample, thin
from gpubloom.server.jobs.tables import MetricBucket, MetricPoint, MetricSeries
from gpubloom.server.schema import MetricNumber, NonFinite
from gpubloom.traincard.snapshot import CLOCK_POINTS

# Each level is eight times as wide as the one before: whatever part of a curve is asked for, one level
# gives it in a few thousand rows.
WIDTHS = {1: 16, 2: 128, 3: 1_024, 4: 8_192}
LEVELS = tuple(WIDTHS)


class NewPoint(NamedTuple):
    """A row of `training_metrics` without its series."""

    x: int
    attempt: int
    seq: int
    time: float
    value: MetricNumber


def level_for(span: int, points: int) -> int:
    """The coarsest level that still gives half as many buckets as points are wanted; 0: single points."""
    chosen = 0
    for level, width in WIDTHS.items():
        if span // width >= points // 2:
            chosen = level
    return chosen


async def read_curves(
    session: AsyncSession,
    job_id: UUID,
    *,
    names: Sequence[str] = (),
    first: int | None = None,
    last: int | None = None,
    points: int = 1_000,
) -> list[Curve]:
    """The curves of a job. `first` and `last` are steps and apply to curves along steps only."""
    statement = select(MetricSeries).where(MetricSeries.job_id == job_id).order_by(MetricSeries.id)
    if names:
        statement = statement.where(MetricSeries.name.in_(names))
    series = list(await session.scalars(statement))
    curves: list[Curve] = []
    for axis in ("step", "time"):
        group = {row.id: row for row in series if row.axis == axis}
        limits = (first, last) if axis == "step" else (None, None)
        curves += await _read_group(session, group, limits, points)
    return curves


async def read_series(
    session: AsyncSession, job_ids: Sequence[UUID], name: str, points: int
) -> dict[UUID, tuple[list[float], list[float], list[int]]]:
    """One series of rank 0 of many jobs: x, mean value and attempt in columns. Few statements for all."""
    rows = await session.execute(
        select(MetricSeries.id, MetricSeries.job_id).where(
            MetricSeries.job_id.in_(job_ids),
            MetricSeries.name == name,
            MetricSeries.rank == 0,
            MetricSeries.axis == "step",
        )
    )
    jobs = {row.id: row.job_id for row in rows}
    # The widest buckets are few: they say how long each curve is.
    widest = WIDTHS[LEVELS[-1]]
    longest = await session.execute(
        select(MetricBucket.series_id, func.max(MetricBucket.bucket))
        .where(MetricBucket.series_id.in_(jobs), MetricBucket.level == LEVELS[-1])
        .group_by(MetricBucket.series_id)
    )
    by_level: dict[int, list[int]] = defaultdict(list)
    spans: dict[int, int] = {}
    for series_id, bucket in longest:
        spans[series_id] = (bucket + 1) * widest
        by_level[_overlay_level(spans[series_id], points)].append(series_id)
    found: dict[UUID, tuple[list[float], list[float], list[int]]] = {}
    for level, ids in by_level.items():
        if level > 0:
            # As many buckets together as the longest of these curves needs; a few points more do no harm.
            longest_span = max(spans[series_id] for series_id in ids)
            together = max(1, round(longest_span / (WIDTHS[level] * points)))
            means = await _read_means(session, ids, level, together)
            found.update((jobs[series_id], columns) for series_id, columns in means.items())
            continue
        for series_id, attempts in (await _read_points(session, ids, 0, _FURTHEST)).items():
            curve = Curve(name, 0, "step")
            for attempt, samples in sorted(attempts.items()):
                every = -(-len(samples) // points) or 1
                thin(curve, attempt, samples, every)
            found[jobs[series_id]] = (curve.x, curve.value, curve.attempt)
    return found


async def _read_means(
    session: AsyncSession, ids: list[int], level: int, together: int
) -> dict[int, tuple[list[float], list[float], list[int]]]:
    """The means of some neighbouring buckets at a time, added up by the database; without extremes."""
    width = WIDTHS[level]
    first, last = func.min(MetricBucket.bucket), func.max(MetricBucket.bucket)
    rows = await session.execute(
        select(
            MetricBucket.series_id,
            MetricBucket.attempt,
            (first + last) * (width / 2) + (width - 1) / 2,
            func.sum(MetricBucket.total) / func.sum(MetricBucket.count),
        )
        .where(MetricBucket.series_id.in_(ids), MetricBucket.level == level, MetricBucket.count > 0)
        .group_by(MetricBucket.series_id, MetricBucket.attempt, MetricBucket.bucket // together)
        .order_by(MetricBucket.series_id, MetricBucket.attempt, first)
    )
    found: dict[int, tuple[list[float], list[float], list[int]]] = {}
    for series_id, attempt, x, mean in rows:
        columns = found.get(series_id)
        if columns is None:
            columns = found[series_id] = ([], [], [])
        columns[0].append(float(x))
        columns[1].append(float(mean))
        columns[2].append(attempt)
    return found


_FURTHEST = 1 << 62


def _overlay_level(span: int, points: int) -> int:
    """The narrowest buckets that are not many more than the points of a chart; 0: the curve is short."""
    if span <= WIDTHS[LEVELS[-1]]:
        return 0
    return next((level for level, width in WIDTHS.items() if 2 * (span // width) <= 5 * points), LEVELS[-1])


async def _read_group(
    session: AsyncSession,
    group: dict[int, MetricSeries],
    limits: tuple[int | None, int | None],
    points: int,
) -> list[Curve]:
    if not group:
        return []
    lows: list[int] = []
    furthest: dict[int, MetricPoint] = {}
    for series_id in group:
        # Each end by itself is one look into the key; asked for both at once, SQLite reads every point.
        mine = select(MetricPoint).where(MetricPoint.series_id == series_id).limit(1)
        low = await session.scalar(mine.order_by(MetricPoint.x))
        high = await session.scalar(mine.order_by(*_BACKWARDS))
        if low is not None and high is not None:
            lows.append(low.x)
            furthest[series_id] = high
    if not furthest:
        return []
    first = max(min(lows), limits[0] if limits[0] is not None else 0)
    last = max(point.x for point in furthest.values())
    last = last if limits[1] is None else min(last, limits[1])
    level = level_for(last - first + 1, points)
    # Evaluations of a long run are few: each is drawn at its own step, not in the middle of a bucket.
    few = list(group) if level == 0 else await _short_series(session, list(group), first, last, points)
    samples = await _read_points(session, few, first, last)
    many = [series_id for series_id in group if series_id not in few]
    if many:
        samples |= await _read_buckets(session, many, level, first, last)
    newest = await _newest(session, furthest)
    return [
        _curve(row, samples.get(series_id, {}), points, newest.get(series_id))
        for series_id, row in group.items()
    ]


async def _short_series(
    session: AsyncSession, ids: list[int], first: int, last: int, points: int
) -> list[int]:
    """The series with no more points in this range than a chart draws; the widest buckets count them."""
    level, width = LEVELS[-1], WIDTHS[LEVELS[-1]]
    rows = await session.execute(
        select(MetricBucket.series_id)
        .where(MetricBucket.series_id.in_(ids), MetricBucket.level.in_((level, -level)))
        .where(MetricBucket.bucket.between(first // width, last // width))
        .group_by(MetricBucket.series_id)
        .having(func.sum(MetricBucket.count) <= points)
    )
    return list(rows.scalars())


_BACKWARDS = (MetricPoint.x.desc(), MetricPoint.attempt.desc(), MetricPoint.seq.desc())


async def _newest(session: AsyncSession, furthest: dict[int, MetricPoint]) -> dict[int, LastPoint]:
    """The newest point of each series: the furthest, unless a later attempt began before it."""
    # The widest buckets are few, and say which attempts a series has.
    rows = await session.execute(
        select(MetricBucket.series_id, func.max(MetricBucket.attempt))
        .where(MetricBucket.series_id.in_(furthest), MetricBucket.level == LEVELS[-1])
        .group_by(MetricBucket.series_id)
    )
    found = dict(furthest)
    for series_id, attempt in rows:
        if attempt > furthest[series_id].attempt:
            mine = select(MetricPoint).where(
                MetricPoint.series_id == series_id, MetricPoint.attempt == attempt
            )
            later = await session.scalar(mine.order_by(*_BACKWARDS).limit(1))
            found[series_id] = later or furthest[series_id]
    return {
        series_id: LastPoint(point.x, point.attempt, reported(point.value, point.non_finite))
        for series_id, point in found.items()
    }


def reported(value: float | None, non_finite: NonFinite | None) -> MetricNumber:
    """A point's value as it was reported; NaN and the infinities by the protocol's names."""
    return value if value is not None else non_finite or "NaN"


async def _read_points(
    session: AsyncSession, ids: list[int], first: int, last: int
) -> dict[int, dict[int, list[Sample]]]:
    rows = await session.execute(
        select(MetricPoint.series_id, MetricPoint.attempt, MetricPoint.x, MetricPoint.value)
        .where(MetricPoint.series_id.in_(ids), MetricPoint.x.between(first, last))
        .order_by(MetricPoint.series_id, MetricPoint.x)
    )
    found: dict[int, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for series_id, attempt, x, value in rows:
        sample = (x, 0.0, 0.0, 0.0, 0) if value is None else (x, value, value, value, 1)
        found[series_id][attempt].append(sample)
    return found


async def _read_buckets(
    session: AsyncSession, ids: list[int], level: int, first: int, last: int
) -> dict[int, dict[int, list[Sample]]]:
    width = WIDTHS[level]
    rows = await session.execute(
        select(
            MetricBucket.series_id,
            MetricBucket.level,
            MetricBucket.attempt,
            MetricBucket.bucket,
            MetricBucket.low,
            MetricBucket.high,
            MetricBucket.total,
            MetricBucket.count,
        )
        .where(MetricBucket.series_id.in_(ids), MetricBucket.level.in_((level, -level)))
        .where(MetricBucket.bucket.between(first // width, last // width))
        .order_by(MetricBucket.series_id, MetricBucket.bucket)
    )
    found: dict[int, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for series_id, row_level, attempt, bucket, low, high, total, count in rows:
        middle = min(bucket * width + (width - 1) / 2, last)
        found[series_id][attempt].append((middle, low, high, total, count if row_level > 0 else 0))
    return found


def _curve(
    row: MetricSeries, attempts: dict[int, list[Sample]], points: int, last: LastPoint | None
) -> Curve:
    curve = Curve(name=row.name, rank=row.rank, axis=row.axis, last=last)
    every = -(-sum(len(samples) for samples in attempts.values()) // points) or 1
    for attempt, samples in sorted(attempts.items()):
        thin(curve, attempt, samples, every)
    return curve


# SQLite joins at most 500 parts in one statement.
_MOST_PARTS = 450


async def read_clock(session: AsyncSession, job_id: UUID) -> list[Clock]:
    """When steps happened, for charts along time: of each attempt, pairs from the series that tells most."""
    counted = await session.execute(
        select(MetricBucket.series_id, func.sum(MetricBucket.count).label("points"))
        .join(MetricSeries, MetricSeries.id == MetricBucket.series_id)
        .where(MetricSeries.job_id == job_id, MetricSeries.axis == "step", MetricSeries.rank == 0)
        .where(MetricBucket.level == LEVELS[-1])
        .group_by(MetricBucket.series_id)
        .order_by(func.sum(MetricBucket.count).desc(), MetricBucket.series_id)
        .limit(1)
    )
    found = counted.first()
    if found is None:
        return []
    series_id, points = found
    if points <= CLOCK_POINTS * WIDTHS[1]:
        rows = await session.execute(
            select(MetricPoint.attempt, MetricPoint.x, MetricPoint.time)
            .where(MetricPoint.series_id == series_id)
            .order_by(MetricPoint.attempt, MetricPoint.x)
        )
        return _clocks([(attempt, x, time) for attempt, x, time in rows])
    return _clocks(await _first_of_buckets(session, series_id))


async def _first_of_buckets(session: AsyncSession, series_id: int) -> list[tuple[int, int, float]]:
    """Attempt, step and time of one point in each of some buckets, without reading the points between."""
    # The widest buckets that are enough.
    buckets: list[tuple[int, int, int]] = []
    for level in reversed(LEVELS):
        rows = await session.execute(
            select(MetricBucket.attempt, MetricBucket.bucket)
            .where(MetricBucket.series_id == series_id, MetricBucket.level == level)
            .order_by(MetricBucket.attempt, MetricBucket.bucket)
        )
        buckets = [(attempt, bucket * WIDTHS[level], WIDTHS[level]) for attempt, bucket in rows]
        if len(buckets) >= CLOCK_POINTS // 2:
            break
    every = -(-len(buckets) // CLOCK_POINTS)
    # The first point of some buckets, and the last point of the last bucket of each attempt.
    chosen = [(*bucket, "") for bucket in buckets[::every]]
    for _, group in groupby(buckets, key=itemgetter(0)):
        own = list(group)
        chosen += [(*own[0], ""), (*own[-1], " DESC")]
    # The statement contains only names and numbers of this module.
    one = (
        "SELECT attempt, x, time FROM (SELECT attempt, x, time FROM training_metrics "
        "WHERE series_id = {} AND attempt = {} AND x >= {} AND x < {} ORDER BY x{} LIMIT 1) AS point"
    )
    parts = {
        one.format(series_id, attempt, begin, begin + width, order)
        for attempt, begin, width, order in chosen[:_MOST_PARTS]
    }
    found = await session.execute(text(" UNION ALL ".join(parts)))
    return sorted({(attempt, x, time) for attempt, x, time in found})


def _clocks(rows: list[tuple[int, int, float]]) -> list[Clock]:
    """Rows in the order of attempt and step; at most a few hundred of each attempt stay."""
    clocks: list[Clock] = []
    for attempt, group in groupby(rows, key=itemgetter(0)):
        some = list(group)
        every = -(-len(some) // CLOCK_POINTS)
        kept = some[::-every][::-1]
        clocks.append(Clock(attempt, [row[1] for row in kept], [round(row[2], 3) for row in kept]))
    return clocks


@dataclass(frozen=True)
class PointRange:
    """Points that were stored together, of series with the same ends.

    Within an attempt the events of a rank are numbered, so `seq` says exactly which points they are; `x`
    leads to them, for the key of the table begins with series and x.
    """

    series: tuple[int, ...]
    attempt: int
    x: tuple[int, int]
    seq: tuple[int, int]
    count: int

    def as_dict(self) -> dict[str, Any]:
        """As a row of `job_events` holds it."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "PointRange":
        first_x, last_x = stored["x"]
        first_seq, last_seq = stored["seq"]
        return cls(
            tuple(stored["series"]),
            stored["attempt"],
            (first_x, last_x),
            (first_seq, last_seq),
            stored["count"],
        )


def merged(ranges: Iterable[PointRange]) -> list[PointRange]:
    """The ranges of consecutive events as few: between two events of a series it has no other points."""
    boxes: dict[tuple[int, int], list[int]] = {}
    for each in ranges:
        count = each.count // len(each.series)
        for series_id in each.series:
            box = boxes.get((series_id, each.attempt))
            if box is None:
                boxes[series_id, each.attempt] = [*each.x, *each.seq, count]
                continue
            box[0], box[1] = min(box[0], each.x[0]), max(box[1], each.x[1])
            box[2], box[3] = min(box[2], each.seq[0]), max(box[3], each.seq[1])
            box[4] += count
    return _grouped(boxes)


def _grouped(boxes: dict[tuple[int, int], list[int]]) -> list[PointRange]:
    """Series that were reported together have the same ends: one range, and later one statement, for all."""
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for (series_id, attempt), box in boxes.items():
        alike[attempt, *box].append(series_id)
    return [
        PointRange(tuple(sorted(series)), attempt, (x0, x1), (seq0, seq1), count * len(series))
        for (attempt, x0, x1, seq0, seq1, count), series in sorted(alike.items())
    ]


async def read_new(session: AsyncSession, ranges: Sequence[PointRange]) -> dict[int, list[NewPoint]]:
    """The points of some ranges by their series, in the order in which they were reported."""
    found: dict[int, list[NewPoint]] = defaultdict(list)
    for each in ranges:
        rows = await session.execute(
            select(
                MetricPoint.series_id,
                MetricPoint.x,
                MetricPoint.attempt,
                MetricPoint.seq,
                MetricPoint.time,
                MetricPoint.value,
                MetricPoint.non_finite,
            )
            .where(MetricPoint.series_id.in_(each.series), MetricPoint.x.between(*each.x))
            .where(MetricPoint.attempt == each.attempt, MetricPoint.seq.between(*each.seq))
        )
        for series_id, x, attempt, seq, time, value, non_finite in rows:
            found[series_id].append(NewPoint(x, attempt, seq, time, reported(value, non_finite)))
    for points in found.values():
        points.sort(key=lambda point: (point.attempt, point.seq))
    return found


# The columns of the wide form, and the series they come from.
_ROW_COLUMNS = {
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "throughput": "train/samples_per_second",
}
_ROW_SYSTEM = {
    "gpu_utilization": "system/gpu/0/utilization",
    "cpu_utilization": "system/cpu/utilization",
    "memory_usage": "system/ram/used",
}
_MEGABYTE = 1_000_000


async def read_rows(
    session: AsyncSession, job_id: UUID, *, limit: int, steps_per_epoch: int | None
) -> list[dict[str, Any]]:
    """The newest reported steps as wide rows, one a step; telemetry is the last value before the step."""
    series = await session.scalars(
        select(MetricSeries).where(MetricSeries.job_id == job_id, MetricSeries.rank == 0)
    )
    by_name = {row.name: row.id for row in series}
    loss_id = by_name.get("train/loss")
    if loss_id is None:
        return []
    newest = list(
        await session.execute(
            select(MetricPoint)
            .where(MetricPoint.series_id == loss_id)
            .order_by(MetricPoint.x.desc(), MetricPoint.attempt.desc(), MetricPoint.seq.desc())
            .limit(limit)
        )
    )
    points: list[MetricPoint] = [row[0] for row in reversed(newest)]
    columns = {
        column: await _values_by_step(session, by_name.get(name), points)
        for column, name in _ROW_COLUMNS.items()
    }
    system = {
        column: await _values_by_time(session, by_name.get(name), points)
        for column, name in _ROW_SYSTEM.items()
    }
    rows = [_row(job_id, point, columns, system) for point in points]
    for row in rows:
        row["epoch"] = None if not steps_per_epoch else (row["step"] - 1) // steps_per_epoch + 1
    return rows


def _row(
    job_id: UUID,
    point: MetricPoint,
    columns: dict[str, dict[tuple[int, int], float | None]],
    system: dict[str, tuple[list[float], list[float | None]]],
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "training_job_id": str(job_id),
        "timestamp": datetime.fromtimestamp(point.time, UTC).isoformat().replace("+00:00", "Z"),
        "step": point.x,
    }
    for column, values in columns.items():
        row[column] = values.get((point.attempt, point.x))
    for column, (times, values_at) in system.items():
        index = bisect_right(times, point.time) - 1
        row[column] = values_at[index] if index >= 0 else None
    if row["memory_usage"] is not None:
        row["memory_usage"] = round(row["memory_usage"] / _MEGABYTE)
    return row


async def _values_by_step(
    session: AsyncSession, series_id: int | None, points: list[MetricPoint]
) -> dict[tuple[int, int], float | None]:
    if series_id is None or not points:
        return {}
    rows = await session.execute(
        select(MetricPoint.attempt, MetricPoint.x, MetricPoint.value).where(
            MetricPoint.series_id == series_id, MetricPoint.x.between(points[0].x, points[-1].x)
        )
    )
    return {(attempt, x): value for attempt, x, value in rows}


async def _values_by_time(
    session: AsyncSession, series_id: int | None, points: list[MetricPoint]
) -> tuple[list[float], list[float | None]]:
    if series_id is None or not points:
        return [], []
    first, last = min(point.time for point in points), max(point.time for point in points)
    rows = await session.execute(
        select(MetricPoint.time, MetricPoint.value)
        .where(MetricPoint.series_id == series_id, MetricPoint.x.between(int(first) - 60, int(last) + 1))
        .order_by(MetricPoint.time)
    )
    found = list(rows)
    return [time for time, _ in found], [value for _, value in found]
