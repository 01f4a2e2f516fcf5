"""Following a run cheaply gives the same answers as following it value by value."""

import math
import random
from pathlib import Path
from typing import Any

from gpubloom.traincard import Reader, Reading, Reporter, snapshot
from gpubloom.traincard.number_encoding import encode_number
from gpubloom.traincard.series import COLUMNS, Curve, points_by_series
from gpubloom.traincard.state import RunState
from gpubloom.traincard.thinning import line_of

_ODD = (math.nan, math.inf, -math.inf)


def _values(count: int, odd: float) -> list[float]:
    draw = random.Random(7)
    return [draw.choice(_ODD) if draw.random() < odd else float(draw.randrange(1000)) for _ in range(count)]


def test_many_points_at_once_make_the_curve_that_single_ones_make() -> None:
    for odd in (0.0, 0.02, 1.0):
        values = _values(5_000, odd)
        times = [step / 10 for step in range(5_000)]
        one_by_one, at_once = Curve(50), Curve(50)
        for step, value in enumerate(values):
            one_by_one.add(step, value, times[step])
        begin = 0
        while begin < 5_000:
            end = begin + random.Random(begin).randrange(1, 400)
            at_once.add_many((range(5_000)[begin:end], values[begin:end], times[begin:end]))
            begin = end
        for column in COLUMNS:
            assert str(getattr(at_once, column)) == str(getattr(one_by_one, column)), (odd, column)


def test_a_line_that_is_drawn_while_it_grows_is_the_line_drawn_afresh() -> None:
    for points in (7, 40, 1000):
        curve = Curve(64)
        for step, value in enumerate(_values(3_000, 0.02)):
            curve.add(step, value, step / 10)
            if step % 37 == 0:
                drawn = line_of(curve, points)
                assert drawn == line_of(curve.copy(), points)
                assert len(drawn["x"]) <= max(2, points)


def test_points_keep_their_order_and_names_whatever_shape_their_lines_have() -> None:
    lines: list[dict[str, Any]] = [
        {"step": 1, "values": {"loss": 3.0, "lr": 1}},
        {"step": 2, "values": {"train/loss": 2.0}},
        {"step": 3, "values": {"loss": "NaN", "lr": 10**400, "note": "text"}},
        {"step": 4, "values": {"loss": 1.0}, "tags": {"split": "eval"}},
        {"values": {"loss": 0.5}},
    ]
    records = [{"seq": seq, "t": seq / 2, "kind": "metric", **line} for seq, line in enumerate(lines)]
    found = points_by_series([*records, {"seq": 9, "t": 9.0, "kind": "system", "values": {"cpu": 1.0}}])
    x, values, times = found["train/loss"]
    assert (list(x), list(times)) == ([1, 2, 3, 4], [0.0, 0.5, 1.0, 2.0])
    assert [encode_number(value) for value in values] == [3.0, 2.0, "NaN", 0.5]
    # Larger than any float.
    assert [list(part) for part in found["train/learning_rate"]] == [[1, 3], [1.0, math.inf], [0.0, 1.0]]
    assert [list(part) for part in found["eval/loss"]] == [[4], [1.0], [1.5]]
    assert [list(part) for part in found["system/cpu"]] == [[9.0], [1.0], [9.0]]
    assert "train/note" not in found


def test_the_state_after_a_batch_is_the_state_after_its_events() -> None:
    records = [{"seq": 0, "t": 0.0, "kind": "start", "attempt": 1}]
    for step in range(1, 30):
        tags = {"split": "eval"} if step % 7 == 0 else None
        name = "train/loss" if step % 3 == 0 else "loss"
        values = {name: step / 2, f"once_{step % 5}": step}
        records.append({"seq": step, "t": float(step), "kind": "metric", "step": step, "values": values})
        if tags:
            records[-1]["tags"] = tags
    one_by_one, at_once = RunState(), RunState()
    for record in records:
        one_by_one.apply(record)
    at_once.apply_all(records)
    assert at_once.latest() == one_by_one.latest()
    assert at_once.values["train/loss"] == {"step": 29, "value": 14.5}


def test_numbers_that_fit_nowhere_cost_their_value_and_nothing_else(tmp_path: Path) -> None:
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 10**400, step=1)
        reporter.metric("loss", 2.0, step=10**400)
        reporter.system({"tokens": 10**400})
        reporter.metric("loss", 1.0, step=2)
    tail = tmp_path / "traincard/events.jsonl"
    assert '"tokens":"Infinity"' in tail.read_text()
    assert tail.read_text().count('"loss"') == 2
    with tail.open("a") as file:
        file.write('{"seq": 90, "t": "noon", "kind": "metric", "step": 3, "values": {"loss": 1.0}}\n')
        file.write('{"seq": 91, "t": 1.0, "kind": "metric", "step": "three", "values": {"loss": 1.0}}\n')
        file.write(f'{{"seq": 92, "t": 1.0, "kind": "metric", "step": {10**400}, "values": {{}}}}\n[]\n')
    for condensed in (tmp_path / "traincard/segments").glob("*.buckets.json"):
        condensed.unlink()
    reading = Reading(tmp_path)
    reading.update()
    assert snapshot(reading)["metrics"][0]["last"] == {"step": 2, "value": 1.0}
    assert reading.damaged_lines == 4


def test_a_reading_that_is_fed_by_another_reader_is_the_one_that_reads_itself(tmp_path: Path) -> None:
    for _ in range(2):
        with Reporter(tmp_path, telemetry_seconds=0) as reporter:
            for step in range(1, 200):
                reporter.metrics({"loss": 1.0 / step, "grad_norm": float(step)}, step=step)
            reporter.log("half of it", level="error")
    reads_itself, fed, has_history = Reading(tmp_path), Reading(tmp_path), Reading(tmp_path)
    reads_itself.update()
    has_history.update()
    reader = Reader(tmp_path)
    while events := reader.read_new(3_000):
        for reading in (fed, has_history):
            reading.take_in(events)
        # As after a database that forgot what it had committed.
        fed.take_in(events)
    for reading in (fed, has_history):
        assert reading.state.latest() == reads_itself.state.latest()
        assert (reading.log_total, reading.attempts) == (reads_itself.log_total, reads_itself.attempts)
        assert reading.recent == reads_itself.recent
    assert fed.log_total == 2
