"""From events to charts: every point once, extremes kept, however long the run is."""

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.metrics import (
    WIDTHS,
    PointRange,
    level_for,
    merged,
    read_curves,
    read_new,
    read_rows,
)
from gpubloom.server.jobs.tables import MetricBucket, TrainingJob
from gpubloom.traincard import RunEvent
from tests.server.installation import Installation
from tests.server.jobs.recorded import START, add_job, metric, system

Result = TypeVar("Result")


@pytest.fixture
def job(installation: Installation, member: User) -> TrainingJob:
    return add_job(installation, member)


def _in_database(installation: Installation, work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        database = Database(installation.database_url)
        try:
            async with database.write() as session:
                return await work(session)
        finally:
            await database.close()

    return asyncio.run(run())


def _store(installation: Installation, job: TrainingJob, events: list[Any]) -> list[PointRange]:
    async def work(session: AsyncSession) -> list[PointRange]:
        return await store_points(session, job, Batch(events))

    return _in_database(installation, work)


def _new(installation: Installation, ranges: list[PointRange]) -> list[list[tuple[int, int, float | str]]]:
    """The points of some ranges by series: attempt, x and value."""

    async def work(session: AsyncSession) -> Any:
        # As a row of job_events gives them back.
        stored = [PointRange.read(json.loads(json.dumps(each.as_dict()))) for each in ranges]
        return await read_new(session, merged(stored))

    found = _in_database(installation, work)
    return [
        [(point.attempt, point.x, point.value) for point in found[series_id]] for series_id in sorted(found)
    ]


def _curve(installation: Installation, job: TrainingJob, **arguments: Any) -> Any:
    async def work(session: AsyncSession) -> Any:
        return await read_curves(session, job.id, **arguments)

    (curve,) = _in_database(installation, work)
    return curve


def test_a_short_run_is_drawn_point_by_point(installation: Installation, job: TrainingJob) -> None:
    _store(installation, job, [metric(step, step * 0.5) for step in range(1, 101)])
    curve = _curve(installation, job)
    assert (curve.name, curve.axis) == ("train/loss", "step")
    assert curve.x == list(range(1, 101))
    assert curve.value == curve.low == curve.high == [step * 0.5 for step in range(1, 101)]


def test_a_long_run_is_thinned_and_keeps_its_extremes(installation: Installation, job: TrainingJob) -> None:
    values = {step: random.Random(step).random() for step in range(1, 20_001)}
    values[13_777], values[4_242] = 99.0, -99.0
    events = [metric(step, value) for step, value in values.items()]
    for start in range(0, len(events), 3_000):
        _store(installation, job, events[start : start + 3_000])
    curve = _curve(installation, job, points=200)
    assert len(curve.x) <= 200
    assert (max(curve.high), min(curve.low)) == (99.0, -99.0)
    assert math.isclose(sum(curve.value) / len(curve.value), sum(values.values()) / 20_000, rel_tol=0.05)
    near = _curve(installation, job, points=200, first=13_700, last=13_800)
    assert (near.x[0], near.x[-1], near.high[77]) == (13_700, 13_800, 99.0)


def _evaluation(step: int) -> RunEvent:
    seq = 1_000_000 + step
    return RunEvent(1, 0, seq, START + step, "metric", step, {"values": {"eval/loss": step / 7}})


def test_the_few_evaluations_of_a_long_run_stand_at_their_own_steps(
    installation: Installation, job: TrainingJob
) -> None:
    events = [metric(step, 2.0) for step in range(40_000)]
    events += [_evaluation(step) for step in range(0, 40_000, 500)]
    for start in range(0, len(events), 3_000):
        _store(installation, job, events[start : start + 3_000])

    async def work(session: AsyncSession) -> Any:
        return {curve.name: curve for curve in await read_curves(session, job.id, points=200)}

    curves = _in_database(installation, work)
    assert curves["eval/loss"].x == list(range(0, 40_000, 500))
    assert curves["eval/loss"].value == [step / 7 for step in range(0, 40_000, 500)]
    assert len(curves["train/loss"].x) <= 200


def test_a_thinned_curve_is_its_means_and_says_its_last_value_as_it_was_reported(
    installation: Installation, job: TrainingJob
) -> None:
    events = [metric(step, 8.0 if step % 100 == 0 else 2.0) for step in range(9_999)] + [metric(9_999, 1.127)]
    for start in range(0, len(events), 3_000):
        _store(installation, job, events[start : start + 3_000])
    curve = _curve(installation, job, points=200)
    assert all(2.0 <= value <= 2.13 for value in curve.value[:-1])
    assert (max(curve.high), min(curve.low)) == (8.0, 1.127)
    assert (curve.last.x, curve.last.value) == (9_999, 1.127)
    # Whatever part is asked for.
    assert _curve(installation, job, first=100, last=200).last.value == 1.127


def test_the_last_value_is_of_the_newest_attempt_also_when_an_earlier_one_came_further(
    installation: Installation, job: TrainingJob
) -> None:
    _store(installation, job, [metric(step, 1.0) for step in range(1, 101)])
    _store(installation, job, [metric(step, 2.0, attempt=2) for step in range(50, 61)])
    last = _curve(installation, job).last
    assert (last.attempt, last.x, last.value) == (2, 60, 2.0)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_last_value_that_is_not_finite_is_said_as_it_is(
    installation: Installation, job: TrainingJob, word: str
) -> None:
    _store(installation, job, [metric(1, 1.0), metric(2, word)])
    curve = _curve(installation, job)
    assert (curve.x, curve.last.x, curve.last.value) == ([1], 2, word)


def test_buckets_are_the_same_however_the_events_arrive(installation: Installation, job: TrainingJob) -> None:
    events = [metric(step, float(step % 37)) for step in range(1, 2_001)]
    cuts = sorted(random.Random(7).sample(range(1, 2_000), 9))
    for start, end in zip([0, *cuts], [*cuts, 2_000], strict=True):
        _store(installation, job, events[start:end])

    async def work(session: AsyncSession) -> list[MetricBucket]:
        return list(await session.scalars(select(MetricBucket)))

    for bucket in _in_database(installation, work):
        width = WIDTHS[bucket.level]
        inside = [float(s % 37) for s in range(1, 2_001) if s // width == bucket.bucket]
        assert (bucket.low, bucket.high, bucket.count) == (min(inside), max(inside), len(inside))
        assert math.isclose(bucket.total, sum(inside))


def test_new_points_are_found_by_their_ranges_and_no_others(
    installation: Installation, job: TrainingJob
) -> None:
    _store(installation, job, [metric(step, 1.0) for step in (1, 2, 3)])
    # The same steps again, as a script that counts anew reports them: only their numbers tell them apart.
    ranges = _store(installation, job, [metric(2, 2.0, seq=10), metric(1, "Infinity", seq=11)])
    _store(installation, job, [metric(1, 3.0, seq=12), metric(2, 3.0, attempt=2)])
    assert [each.count for each in ranges] == [2]
    assert _new(installation, ranges) == [[(1, 2, 2.0), (1, 1, "Infinity")]]


def test_ranges_of_several_events_are_read_as_one(installation: Installation, job: TrainingJob) -> None:
    ranges: list[PointRange] = []
    for step in range(1, 6):
        ranges += _store(installation, job, [metric(step, step / 2), system(step, {"ram/used": step * 1.0})])
    ranges += _store(installation, job, [metric(3, 9.0, attempt=2, seq=0)])
    few = merged(ranges)
    assert (len(few), sum(each.count for each in few)) == (3, 11)
    loss, memory = _new(installation, ranges)
    assert loss == [*((1, step, step / 2) for step in range(1, 6)), (2, 3, 9.0)]
    assert [value for _, _, value in memory] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_point_cannot_be_stored_twice(installation: Installation, job: TrainingJob) -> None:
    _store(installation, job, [metric(1, 1.0)])
    with pytest.raises(IntegrityError):
        _store(installation, job, [metric(1, 1.0)])


def test_repeated_steps_of_a_new_attempt_are_kept_beside_the_old(
    installation: Installation, job: TrainingJob
) -> None:
    _store(installation, job, [metric(step, 1.0) for step in (1, 2, 3)])
    _store(installation, job, [metric(step, 2.0, attempt=2) for step in (2, 3, 4)])
    curve = _curve(installation, job)
    assert list(zip(curve.attempt, curve.x, strict=True)) == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4)]


def test_what_no_chart_can_draw_is_left_out(installation: Installation, job: TrainingJob) -> None:
    _store(installation, job, [metric(1, 1.0), metric(2, "NaN"), metric(3, "Infinity"), metric(4, 2.0)])
    assert _curve(installation, job).x == [1, 4]


def test_a_number_that_fits_nowhere_costs_its_value_and_nothing_else(
    installation: Installation, job: TrainingJob
) -> None:
    _store(installation, job, [metric(1, 1.0), metric(2, 10**400), metric(3, True), metric(4, 7)])
    assert _curve(installation, job).value == [1.0, 1.0, 7.0]


def test_rows_have_the_wide_form(installation: Installation, job: TrainingJob) -> None:
    telemetry = {"gpu/0/utilization": 95.5, "cpu/utilization": 60.0, "ram/used": 75_000_000_000}
    _store(installation, job, [system(1, telemetry), *(metric(step, 2.0 / step) for step in (1, 2, 3))])

    async def work(session: AsyncSession) -> list[dict[str, Any]]:
        return await read_rows(session, job.id, limit=2, steps_per_epoch=2)

    rows = _in_database(installation, work)
    assert [(row["step"], row["epoch"], row["loss"]) for row in rows] == [(2, 1, 1.0), (3, 2, 2.0 / 3)]
    assert (rows[0]["gpu_utilization"], rows[0]["cpu_utilization"], rows[0]["memory_usage"]) == (
        95.5,
        60.0,
        75_000,
    )
    assert rows[0]["timestamp"].endswith("Z")
    assert START


@pytest.mark.parametrize("span", [1, 100, 8_000, 64_000, 10**6, 10**8])
def test_any_span_is_read_in_a_few_thousand_rows(span: int) -> None:
    level = level_for(span, 1_000)
    rows = span if level == 0 else span // WIDTHS[level]
    assert rows <= 16_000 or level == max(WIDTHS)


def test_the_largest_numbers_are_kept_however_often_they_are_reported(
    installation: Installation, job: TrainingJob
) -> None:
    """Their sum is no number any more, which one of the databases refuses to add."""
    for step in range(1, 5):
        _store(installation, job, [metric(step, 1.7e308)])
    [curve] = _in_database(installation, lambda session: read_curves(session, job.id, points=1_000))
    assert list(curve.value) == [1.7e308] * 4
