"""The filter language: what matches, and where an error is."""

from datetime import UTC, datetime

import pytest

from gpubloom.runs.query import QueryError
from gpubloom.runs.stats import MetricStats
from gpubloom.runs.table import Run, View, tabulate

DAY = datetime(2026, 11, 5, 12, tzinfo=UTC).timestamp()


def _stats(*values: float) -> list[object]:
    stats = MetricStats()
    stats.add(enumerate(values, start=1))
    return stats.as_list()


RUNS = [
    Run(
        "1",
        "gemma lora",
        "completed",
        DAY,
        project="Support",
        tags=["sweep-11", "keep"],
        seconds=8_000,
        cost=9.5,
        config={"learning_rate": 2e-4, "lora.rank": 16, "method": "lora", "shuffle": True},
        stats={"eval/loss": _stats(2.0, 1.2, 1.4), "train/loss": _stats(0.9)},
    ),
    Run(
        "2",
        "gemma full",
        "failed",
        DAY - 86_400 * 10,
        project="Support",
        seconds=60,
        config={"learning_rate": 1e-3, "method": "full", "shuffle": False},
        stats={"eval/loss": _stats(float("nan")), "train/loss": _stats(3.0)},
        notes="diverged at once",
    ),
    Run("3", "script", "running", DAY, project="Other", facts={"optimizer.name": "muon"}),
]


def _found(query: str) -> list[str]:
    table = tabulate(RUNS, View(query, group=(), sort="id"))
    return [row.id for section in table.sections for row in section.rows]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["1", "2", "3"]),
        ("lr > 1e-4", ["1", "2"]),
        ("lr > 1e-4 and status = failed", ["2"]),
        ("learning_rate = 0.0002", ["1"]),
        ("rank = 16", ["1"]),
        ("lora.rank >= 16 or status = running", ["1", "3"]),
        ("not (status = failed or status = running)", ["1"]),
        ("status in (failed, running)", ["2", "3"]),
        ("status != failed", ["1", "3"]),
        ("method != lora", ["2", "3"]),
        ("method = none", ["3"]),
        ("tag = SWEEP-11", ["1"]),
        ("tags = none", ["2", "3"]),
        ("eval/loss < 1.5", ["1"]),
        ("eval/loss.min < 1.3", ["1"]),
        ("eval/loss.max > 1.9", ["1"]),
        ("eval/loss = nan", ["2"]),
        ("train/loss.mean > 1", ["2"]),
        ("cost < 10", ["1"]),
        ("time > 2h", ["1"]),
        ("time <= 1m", ["2"]),
        ("created > 2026-11-01", ["1", "3"]),
        ("created = 2026-11-05", ["1", "3"]),
        ("created < 2026-11-05T12:00", ["2"]),
        ("created > 1d", []),
        ("project ~ supp", ["1", "2"]),
        ("name !~ gemma", ["3"]),
        ("shuffle = true", ["1"]),
        ('"diverged"', ["2"]),
        ("optimizer.name = muon", ["3"]),
        ('project = "Other"', ["3"]),
    ],
)
def test_a_filter_finds_these_runs(query: str, found: list[str]) -> None:
    assert _found(query) == found


@pytest.mark.parametrize(
    ("query", "code", "position"),
    [
        ("lr >", "invalid_query", 4),
        ("lr", "invalid_query", 2),
        ("lr > 1 status = failed", "invalid_query", 7),
        ("(lr > 1", "invalid_query", 7),
        ("lr > 1 and", "invalid_query", 10),
        ("learningrate > 1", "unknown_column", 0),
        ("status = failed and los < 1", "unknown_column", 20),
        ('name = "abc', "invalid_query", 7),
        ("name ! abc", "invalid_query", 5),
        ("created > yesterday", "invalid_query", 10),
        ("time > long", "invalid_query", 7),
        ("status in failed", "invalid_query", 10),
        ("(" * 60, "invalid_query", 40),
        ("and", "invalid_query", 0),
    ],
)
def test_an_error_says_where_it_is(query: str, code: str, position: int) -> None:
    with pytest.raises(QueryError) as caught:
        _found(query)
    assert (caught.value.code, caught.value.position) == (code, position), str(caught.value)


def test_a_misspelled_column_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(QueryError, match="learning_rate"):
        _found("learning_rat > 1")


def test_without_runs_no_column_is_wrong() -> None:
    assert tabulate([], View("lr > 1")).matched == 0
