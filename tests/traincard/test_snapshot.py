"""The snapshot has everything that a card shows, in the shape that docs/traincard.md gives."""

import json
import math
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.traincard import Reading, Reporter, search_log, snapshot

Open = Callable[..., Reporter]


def test_an_empty_directory_waits_for_its_first_event(tmp_path: Path) -> None:
    shown = snapshot(tmp_path)
    assert shown["status"]["status"] == "waiting"
    assert shown["metrics"] == shown["findings"] == shown["ranks"] == []
    assert shown["failure"] is None


def test_a_snapshot_is_plain_json_whatever_was_reported(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.describe({"global_batch_size": 32, "odd": math.nan})
    reporter.metrics({"loss": math.nan, "eval_loss": math.inf, "lr": 1e-3}, 1)
    reporter.system({"gpu/0/power": math.nan, "cpu/utilization": 3})
    reporter.checkpoint("c", step=1, metrics={"eval_loss": math.nan})
    reporter.error(ValueError("no"))
    reporter.finish("failed", "no")
    text = json.dumps(snapshot(run_dir), allow_nan=False)
    assert json.loads(text)["status"]["global_batch_size"] == 32


def test_every_line_has_at_most_so_many_points_and_keeps_its_extremes(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter()
    for step in range(5000):
        reporter.metric("loss", 100.0 if step == 1234 else -5.0 if step == 4321 else 1.0, step)
        if step % 1000 == 0:
            reporter.flush()
    reporter.flush()
    for points in (100, 500, 2000):
        (metric,) = snapshot(run_dir, points)["metrics"]
        (line,) = metric["lines"]
        assert len(line["x"]) == len(line["y"]) == len(line["t"]) <= points
        assert line["x"] == sorted(line["x"])
        assert (max(line["high"]), min(line["low"])) == (100, -5)
        assert metric["best"]["value"] == -5
        assert metric["last"] == {"step": 4999, "value": 1}


def test_a_thinned_line_is_the_mean_of_its_buckets_and_its_last_value_is_the_reported_one(
    run_dir: Path, open_reporter: Open
) -> None:
    reporter = open_reporter()
    values = [8.0 if step % 100 == 0 else 2.0 for step in range(9_999)] + [1.127]
    for step, value in enumerate(values):
        reporter.metric("loss", value, step)
        if step % 1000 == 0:
            reporter.flush()
    reporter.flush()
    for points in (100, 2000):
        (line,) = snapshot(run_dir, points)["metrics"][0]["lines"]
        width = 10_000 / len(line["x"])
        assert all(2.0 <= value <= 2.0 + 6 * math.ceil(width / 100) / width for value in line["y"][:-1])
        assert len(line["low"]) == len(line["high"]) == len(line["y"])
        assert (max(line["high"]), min(line["low"]), line["last"]) == (8, 1.127, 1.127)
        assert (line["x"][0], line["x"][-1]) == (0, 9_999)


def test_a_line_of_single_values_has_no_extremes_beside_them(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    for step in range(10):
        reporter.metric("loss", step / 2, step)
    reporter.flush()
    (line,) = snapshot(run_dir)["metrics"][0]["lines"]
    assert (line["y"], line["low"], line["high"]) == ([step / 2 for step in range(10)], [], [])


def test_telemetry_of_a_long_attempt_and_of_a_short_one_is_one_line(
    run_dir: Path, open_reporter: Open
) -> None:
    for count in (5_000, 3):
        reporter = open_reporter()
        for number in range(count):
            reporter.system({"cpu/utilization": number % 100})
            if number % 1000 == 0:
                reporter.flush()
        reporter.close()
    (series,) = snapshot(run_dir)["system"]["series"]
    (line,) = series["lines"]
    assert len(line["x"]) == len(line["y"]) == len(line["low"]) == len(line["high"])
    assert line["y"][-4:] == line["low"][-4:] == line["high"][-4:] == [None, 0, 1, 2]
    assert (max(value for value in line["high"] if value is not None), line["last"]) == (99, 2)


def test_values_that_are_no_number_are_gaps(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    for step, value in enumerate([1.0, math.nan, 3.0]):
        reporter.metric("loss", value, step)
    reporter.flush()
    assert snapshot(run_dir)["metrics"][0]["lines"][0]["y"] == [1, None, 3]


def test_metrics_are_grouped_in_the_order_of_the_card(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    names = ("reward", "accuracy", "samples_per_second", "tokens_per_second", "grad_norm", "lr", "loss")
    reporter.metrics({**dict.fromkeys(names, 1.0), "eval_loss": 1.0, "eval_f1": 1.0}, 1)
    reporter.flush()
    assert [(metric["group"], metric["title"]) for metric in snapshot(run_dir)["metrics"]] == [
        ("loss", "eval loss"),
        ("loss", "loss"),
        ("evaluation", "eval f1"),
        ("learning_rate", "learning rate"),
        ("gradient_norm", "grad norm"),
        ("throughput", "samples per second"),
        ("throughput", "tokens per second"),
        ("accuracy", "accuracy"),
        ("other", "reward"),
    ]


def test_gpus_are_shown_each_and_together_by_node(
    run_dir: Path, open_reporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, host in enumerate(("north", "south")):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        reporter = open_reporter(rank=rank, world_size=2)
        reporter.describe({f"gpu/{gpu}/name": f"Card {gpu}" for gpu in range(2)})
        for number in range(10):
            reporter.system(
                {
                    f"gpu/{gpu}": {
                        "utilization": 10 * rank + gpu,
                        "power": 100 + number,
                        "temperature": 60 + gpu,
                    }
                    for gpu in range(2)
                }
            )
        reporter.close()
    system = snapshot(run_dir)["system"]
    by_name = {series["name"]: series for series in system["series"]}
    use = by_name["gpu/utilization"]
    assert [(line["host"], line["gpu"], set(line["y"])) for line in use["lines"]] == [
        ("north", 0, {0}),
        ("north", 1, {1}),
        ("south", 0, {10}),
        ("south", 1, {11}),
    ]
    assert use["aggregate"]["how"] == "mean"
    assert by_name["gpu/power"]["aggregate"]["how"] == "sum"
    assert max(by_name["gpu/temperature"]["aggregate"]["y"]) == 61
    assert [
        (node["host"], node["ranks"], [gpu["name"] for gpu in node["gpus"]]) for node in system["nodes"]
    ] == [
        ("north", [0], ["Card 0", "Card 1"]),
        ("south", [1], ["Card 0", "Card 1"]),
    ]


def test_numbers_that_are_none_are_named_where_a_number_is_shown(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.describe({"loss_scale": math.inf})
    reporter.metrics({"loss": math.nan, "grad_norm": -math.inf}, 1)
    reporter.system({"gpu/0/power": math.nan})
    reporter.checkpoint("c", step=1, metrics={"eval_loss": math.nan})
    reporter.error(ValueError("no"))
    reporter.finish("failed", "no")
    shown = snapshot(run_dir)
    assert {metric["name"]: metric["last"]["value"] for metric in shown["metrics"]} == {
        "train/loss": "NaN",
        "train/grad_norm": "-Infinity",
    }
    assert shown["status"]["facts"]["loss_scale"] == "Infinity"
    assert shown["checkpoints"]["items"][0]["metrics"] == {"eval_loss": "NaN"}
    assert shown["failure"]["last_metrics"]["train/loss"] == {"step": 1, "value": "NaN"}
    assert shown["failure"]["last_metrics"]["train/grad_norm"]["value"] == "-Infinity"
    assert shown["failure"]["last_system"]["gpu/0/power"] == "NaN"
    assert shown["system"]["nodes"][0]["last"]["gpu/0/power"] == "NaN"


def test_a_failure_is_summed_up_with_the_last_state(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    reporter.metric("loss", 2.5, 41)
    reporter.system({"ram/used": 7})
    try:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    except RuntimeError as problem:
        reporter.on_exception(problem)
    failure = snapshot(run_dir)["failure"]
    assert (failure["status"], failure["type"], failure["cause"]) == (
        "failed", "RuntimeError", "gpu_out_of_memory",
    )  # fmt: skip
    assert "Traceback" in failure["traceback"]
    assert failure["last_metrics"] == {"train/loss": {"step": 41, "value": 2.5}}
    assert failure["last_system"] == {"ram/used": 7}
    assert (failure["rank"], failure["step"]) == (0, 41)


def test_the_first_rank_to_fail_explains_the_failure(run_dir: Path, open_reporter: Open) -> None:
    first, other = open_reporter(rank=0, world_size=2), open_reporter(rank=1, world_size=2)
    other.on_exception(MemoryError("no room"))
    first.on_exception(RuntimeError("NCCL: connection closed by peer"))
    failure = snapshot(run_dir)["failure"]
    assert (failure["rank"], failure["type"]) == (1, "MemoryError")


def test_the_log_has_a_tail_and_can_be_searched_to_its_beginning(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    for number in range(3000):
        reporter.log(f"Line {number}", level="error" if number == 5 else "info")
        reporter.metric("loss", 1.0, number)
        if number % 500 == 0:
            reporter.flush()
    reporter.close()
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "output.log").write_text("".join(f"printed {n}\n" for n in range(20_000)))
    logs = snapshot(run_dir)["logs"]
    assert (logs["total"], logs["errors"]) == (3000, 1)
    assert logs["lines"][-1]["line"] == "Line 2999"
    assert logs["output"][-1] == "printed 19999"
    assert len(logs["output"]) == 200
    assert [line.line for line in search_log(run_dir, "line 5", levels=["error"])] == ["Line 5"]
    assert [line.line for line in search_log(run_dir, "LINE 17", most=3)] == [
        "Line 1797", "Line 1798", "Line 1799",
    ]  # fmt: skip


def test_a_reading_that_is_kept_shows_the_same_as_a_fresh_one(run_dir: Path, open_reporter: Open) -> None:
    reporter = open_reporter()
    kept = Reading(run_dir)
    for step in range(300):
        reporter.metric("loss", 1 / (step + 1), step)
        reporter.progress(step, 1000)
        if step % 50 == 0:
            reporter.checkpoint(f"c{step}", step=step)
            reporter.flush()
            kept.update()
    reporter.finish("completed")
    kept.update()
    assert snapshot(kept, now=1.0) == snapshot(run_dir, now=1.0)
