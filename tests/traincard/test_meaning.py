"""Pure parts: names, likely causes, the state fold, curves."""

import math
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter, RunState, load_latest, read_all, series_name
from gpubloom.traincard.failure import error_fields
from gpubloom.traincard.series import Curve


@pytest.mark.parametrize(
    ("name", "tags", "series"),
    [
        ("loss", {}, "train/loss"),
        ("train/loss", {}, "train/loss"),
        ("train_loss", {}, "train/loss"),
        ("loss", {"split": "train"}, "train/loss"),
        ("train/loss", {"split": "train"}, "train/loss"),
        ("eval_loss", {}, "eval/loss"),
        ("val/loss", {}, "eval/loss"),
        ("loss", {"split": "validation"}, "eval/loss"),
        ("test_accuracy", {}, "test/accuracy"),
        ("valid_tokens", {}, "train/valid_tokens"),
        ("lr", {}, "train/learning_rate"),
        ("rouge/l", {}, "rouge/l"),
        ("rouge/l", {"split": "eval"}, "eval/rouge/l"),
        ("loss", {"gpu": 1, "expert": 3}, "train/loss{expert=3,gpu=1}"),
        ("loss", {"split": "held-out"}, "held-out/loss"),
    ],
)
def test_names_of_one_series_become_one(name: str, tags: dict[str, object], series: str) -> None:
    assert series_name(name, tags) == series


def test_a_very_long_traceback_is_shortened_in_the_middle() -> None:
    fields = error_fields(RuntimeError("x" * 100_000))
    assert len(fields["traceback"]) < 40_000
    assert "left out" in fields["traceback"]


def test_latest_is_the_fold_of_the_events(run_dir: Path) -> None:
    for attempt in range(2):
        with Reporter(run_dir, telemetry_seconds=0) as reporter:
            reporter.describe({"model": "tiny"})
            if attempt:
                reporter.resumed(3)
            for step in range(10):
                reporter.progress(step, 10)
                reporter.metric("loss", 1 / (step + 1), step)
            reporter.checkpoint("c", step=9)
            reporter.applied(3)
    state = RunState()
    for event in read_all(run_dir):
        state.apply(event.fields)
    assert load_latest(run_dir) == state.latest()


def test_the_time_left_follows_the_recent_speed() -> None:
    state = RunState()
    state.apply({"seq": 0, "t": 0.0, "kind": "start", "attempt": 1})
    assert state.eta_seconds() is None
    for second in range(100):
        state.apply({"t": float(second), "kind": "progress", "step": second * 2, "total_steps": 1000})
    assert state.eta_seconds() == pytest.approx((1000 - 198) / 2, rel=0.01)
    for second in range(100, 400):
        state.apply({"t": float(second), "kind": "progress", "step": 198 + second - 99, "total_steps": 1000})
    assert state.eta_seconds() == pytest.approx(1000 - 498, rel=0.01)
    state.apply({"t": 400.0, "kind": "end", "status": "completed"})
    assert state.eta_seconds() is None


def test_a_long_curve_stays_small_and_keeps_its_spike() -> None:
    curve = Curve(most=100)
    for step in range(100_000):
        curve.add(step, 99.0 if step == 54_321 else math.sin(step), float(step))
    assert len(curve.buckets) <= 100
    assert max(bucket.highest for bucket in curve.buckets) == 99.0
    assert (curve.buckets[0].first_step, curve.buckets[-1].last_step) == (0, 99_999)
    assert sum(bucket.points for bucket in curve.buckets) == 100_000


def test_a_curve_with_nan_keeps_its_numbers() -> None:
    curve = Curve(most=2)
    for step, value in enumerate([math.nan, 1.0, 3.0, math.nan, 2.0, math.nan]):
        curve.add(step, value, 0.0)
    assert max(bucket.highest for bucket in curve.buckets if bucket.highest == bucket.highest) == 3.0
