"""Twenty runs, as their cards and as their job pages get them: the same numbers."""

import asyncio
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.curves import Clock, Curve
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.metrics import read_clock, read_curves
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard import read_all
from gpubloom.traincard.card.content import run_content
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job
from tests.traincard_card.generated import generate_run

Key = tuple[str, int]


def _stored(installation: Installation, job: TrainingJob, run_dir: Path) -> tuple[list[Curve], list[Clock]]:
    async def work() -> tuple[list[Curve], list[Clock]]:
        database = Database(installation.database_url)
        events = list(read_all(run_dir))
        try:
            for start in range(0, len(events), 1_000):
                async with database.write() as session:
                    await store_points(session, job, Batch(events[start : start + 1_000]))
            async with database.write() as session:
                return await read_curves(session, job.id), await read_clock(session, job.id)
        finally:
            await database.close()

    return asyncio.run(work())


def _of_the_card(content: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    """By name and rank: the last value, the extremes, the mean of each attempt and where gaps are."""
    found: dict[Key, dict[str, Any]] = {}
    for metric in content["metrics"]:
        for line in metric["lines"]:
            one = found.setdefault((metric["name"], line["rank"]), _nothing())
            points = [
                (y, low, high, n)
                for y, low, high, n in zip(
                    line["y"],
                    line["low"] or line["y"],
                    line["high"] or line["y"],
                    line["n"] or [1] * len(line["y"]),
                    strict=True,
                )
                if y is not None
            ]
            _take(one, line["attempt"], points)
            one["gaps"] |= {line["attempt"]} if line["gaps"] else set()
            one["last"] = line["last"]
    return found


def _of_the_page(curves: list[Curve]) -> dict[Key, dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {}
    for curve in curves:
        one = found.setdefault((curve.name, curve.rank), _nothing())
        by_attempt: dict[int, list[tuple[float, float, float, int]]] = defaultdict(list)
        for point in zip(curve.attempt, curve.value, curve.low, curve.high, curve.count, strict=True):
            by_attempt[point[0]].append(point[1:])
        for attempt, points in by_attempt.items():
            _take(one, attempt, points)
        one["gaps"] = set(curve.gaps.attempt)
        one["last"] = None if curve.last is None else curve.last.value
    return found


def _nothing() -> dict[str, Any]:
    return {"low": math.inf, "high": -math.inf, "means": {}, "counts": {}, "gaps": set(), "last": None}


def _take(one: dict[str, Any], attempt: int, points: list[tuple[float, float, float, int]]) -> None:
    if not points:
        return
    count = sum(n for *_, n in points)
    one["low"] = min(one["low"], *(low for _, low, _, _ in points))
    one["high"] = max(one["high"], *(high for _, _, high, _ in points))
    one["counts"][attempt] = count
    one["means"][attempt] = math.fsum(y * n for y, _, _, n in points) / count


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_card_and_the_job_page_of_a_run_have_the_same_numbers(
    installation: Installation, member: User, tmp_path: Path, seed: int
) -> None:
    run_dir = generate_run(tmp_path / "run", seed)
    content = run_content(run_dir)
    curves, clock = _stored(installation, add_job(installation, member), run_dir)
    card, page = _of_the_card(content), _of_the_page(curves)
    assert set(card) == set(page)
    for key, on_card in card.items():
        on_page = page[key]
        assert on_card["gaps"] == on_page["gaps"], key
        assert on_card["counts"] == on_page["counts"], key
        if isinstance(on_card["last"], str):
            assert on_card["last"] == on_page["last"]
        else:
            assert math.isclose(on_card["last"], on_page["last"], rel_tol=1e-6), key
        for end in ("low", "high"):
            assert on_card[end] == on_page[end] or math.isclose(on_card[end], on_page[end], rel_tol=1e-6)
        for attempt, mean in on_card["means"].items():
            assert math.isclose(mean, on_page["means"][attempt], rel_tol=1e-5), (key, attempt)
    # And lie at the same times: both clocks end with the newest step.
    assert [(one["attempt"], one["x"][-1]) for one in content["clock"]] == [
        (one.attempt, one.x[-1]) for one in clock
    ]
    for one, other in zip(content["clock"], clock, strict=True):
        assert math.isclose(one["t"][-1], other.time[-1], abs_tol=0.01)
