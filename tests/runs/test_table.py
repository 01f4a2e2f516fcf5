"""The run list: rows, groups of seeds, order, pages; and the mean over seeds in a chart."""

import math

import pytest

from gpubloom.runs.overlay import RunCurve, newest_attempt, overlay
from gpubloom.runs.stats import MetricStats, merge_stats
from gpubloom.runs.table import Run, View, tabulate


def _run(number: int, seed: int | None, loss: float, status: str = "completed", **config: object) -> Run:
    stats = MetricStats()
    stats.add([(1, loss)])
    settings = {"learning_rate": 1e-4, **config, **({} if seed is None else {"seed": seed})}
    return Run(
        str(number),
        f"gpt, seed {seed}",
        status,
        1_000.0 + number,
        project="P",
        config=settings,
        stats={"eval/loss": stats.as_list()},
    )


COLUMNS = ("learning_rate", "eval/loss.min", "seed")


def test_runs_that_differ_in_their_seed_are_one_row_with_mean_and_deviation() -> None:
    runs = [_run(1, 0, 1.0), _run(2, 1, 2.0), _run(3, 2, 3.0), _run(4, 0, 9.0, learning_rate=1e-3)]
    table = tabulate(runs, View(columns=COLUMNS, sort="eval/loss.min"))
    rows = table.sections[0].rows
    assert [len(row.runs) for row in rows] == [3, 1]
    assert rows[0].cells == {"learning_rate": 1e-4, "eval/loss.min": 2.0, "seed": "mixed"}
    assert rows[0].spread == {"eval/loss.min": pytest.approx(1.0)}
    assert rows[0].name == "gpt"
    assert [member.cells["seed"] for member in rows[0].members] == [0, 1, 2]
    assert (table.total, table.matched, table.row_count) == (4, 4, 2)


def test_a_failed_seed_is_left_out_of_the_mean() -> None:
    runs = [_run(1, 0, 1.0), _run(2, 1, 2.0), _run(3, 2, 100.0, "failed")]
    row = tabulate(runs, View(columns=COLUMNS)).sections[0].rows[0]
    assert row.cells["eval/loss.min"] == 1.5
    assert row.statuses == {"completed": 2, "failed": 1}


def test_the_same_seed_twice_and_a_run_without_seed_are_rows_of_their_own() -> None:
    runs = [_run(1, 0, 1.0), _run(2, 0, 2.0), _run(3, None, 3.0), _run(4, None, 4.0)]
    assert tabulate(runs, View(columns=COLUMNS)).row_count == 4


def test_rows_without_a_value_come_last_in_either_direction() -> None:
    runs = [_run(1, None, 2.0, a=1), _run(2, None, math.nan, a=2), _run(3, None, 1.0, a=3)]
    for sort, order in (("eval/loss.min", ["3", "1", "2"]), ("-eval/loss.min", ["1", "3", "2"])):
        table = tabulate(runs, View(columns=COLUMNS, sort=sort))
        assert [row.id for row in table.sections[0].rows] == order


def test_sections_follow_the_columns_of_the_grouping_and_pages_cut_through_them() -> None:
    runs = [_run(number, None, 1.0, method=("lora", "full")[number % 2]) for number in range(6)]
    table = tabulate(runs, View(columns=COLUMNS, group=("method",), sort="id"), limit=4, offset=1)
    assert [(section.title, section.runs, len(section.rows)) for section in table.sections] == [
        ("method lora", 3, 2),
        ("method full", 3, 2),
    ]


def test_statistics_grow_with_points_and_survive_storage() -> None:
    stored = merge_stats({}, {"loss": [(1, 3.0), (2, 1.0)]})
    stored = merge_stats(stored, {"loss": [(3, math.inf), (4, 2.0)], "lr": [(4, math.nan)]})
    loss, rate = (MetricStats.from_list(stored[name]) for name in ("loss", "lr"))
    assert (loss.last, loss.min, loss.min_step, loss.max, loss.mean) == (2.0, 1.0, 2, 3.0, 2.0)
    assert math.isnan(rate.last)
    assert rate.mean is None


def _curve(values: list[float], *, failed: bool = False, every: int = 1) -> RunCurve:
    return RunCurve("r", "r", failed, [float(every * step) for step in range(len(values))], values)


def test_the_mean_over_seeds_lies_between_the_lowest_and_the_highest() -> None:
    found = overlay([_curve([4.0, 2.0, 0.0]), _curve([2.0, 2.0, 2.0])])
    assert (found.x, found.mean) == ([0.0, 1.0, 2.0], [3.0, 2.0, 1.0])
    assert (found.low, found.high) == ([2.0, 2.0, 0.0], [4.0, 2.0, 2.0])


def test_curves_with_other_steps_are_met_on_the_lines_between_their_points() -> None:
    found = overlay([_curve([0.0, 1.0, 2.0, 3.0, 4.0]), _curve([0.0, 4.0], every=4)])
    assert found.mean == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert found.low == found.high


def test_a_failed_seed_does_not_move_the_mean_and_a_shorter_one_ends_it() -> None:
    found = overlay([_curve([1.0] * 10), _curve([3.0] * 4), _curve([50.0, 60.0], failed=True)])
    assert set(found.mean) == {2.0}
    assert found.x[-1] == 3.0
    assert [list(curve.y) for curve in found.failed] == [[50.0, 60.0]]


def test_steps_that_were_done_again_count_once() -> None:
    x, y = newest_attempt([1, 2, 3, 2, 3, 4], [9, 8, 7, 6, 5, math.nan], [1, 1, 1, 2, 2, 2])
    assert (x, y) == ([1, 2, 3], [9, 6, 5])
