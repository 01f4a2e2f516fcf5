"""The learning-rate finder: what it makes of curves, and whether trainings agree with what it suggests."""

import argparse
import inspect
import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from gpubloom.engine.data import Dataset, Loader
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.model import Model
from gpubloom.engine.optimizer.schedule import Schedule
from gpubloom.engine.tasks.find_learning_rate import Tried, find, growing_rates, sweep
from gpubloom.engine.trainer import evaluate
from gpubloom.plan import TrainConfig
from gpubloom.plan.tasks import task_files, task_from
from gpubloom.traincard import read_all
from tests.tiny_models import make_tiny_model

RATES = growing_rates(1e-6, 1e-1, 60)


def curve(bottom: float = 1e-2, wobble: float = 0.0, diverges: bool = False) -> list[Tried]:
    """Flat, then down around `bottom` / 10, then flat, and up beyond it if it diverges."""
    tried = []
    for number, rate in enumerate(RATES):
        loss = 2 + 3 / (1 + (rate / (bottom / 10)) ** 1.5) + wobble * math.sin(7 * number)
        if diverges and rate > 3 * bottom:
            loss *= (rate / (3 * bottom)) ** 3
        tried.append(Tried(rate, loss))
        if loss > 4 * min(each.loss for each in tried):
            break
    return tried


def test_rates_grow_by_the_same_factor() -> None:
    assert (RATES[0], RATES[-1]) == pytest.approx((1e-6, 1e-1))
    factors = [after / before for before, after in pairwise(RATES)]
    assert factors == pytest.approx([factors[0]] * 59)


@pytest.mark.parametrize("bottom", [1e-4, 1e-3, 1e-2])
def test_the_suggestion_moves_with_the_place_where_the_loss_stops_falling(bottom: float) -> None:
    finding = find(curve(bottom))
    assert finding.suggested is not None
    assert bottom / 3 < finding.suggested < bottom * 3


def test_batches_that_differ_move_the_suggestion_little() -> None:
    calm, wobbling = find(curve()).suggested, find(curve(wobble=0.2)).suggested
    assert calm is not None
    assert wobbling == pytest.approx(calm, rel=0.6)


def test_a_loss_that_diverges_is_said_with_its_rate() -> None:
    finding = find(curve(1e-3, diverges=True))
    assert finding.diverged_at is not None
    assert 3e-3 < finding.diverged_at < 3e-2
    assert f"The loss diverged at {finding.diverged_at:.2g}." in finding.reason
    assert finding.suggested is not None
    assert finding.suggested < finding.diverged_at / 2


def test_a_loss_that_is_not_finite_ends_the_curve_and_stays_out_of_it() -> None:
    finding = find([*curve(1e-3)[:45], Tried(RATES[45], math.nan)])
    assert finding.diverged_at == RATES[45]
    assert len(finding.points) == 45
    json.dumps([vars(point) for point in finding.points], allow_nan=False)


def test_a_loss_that_never_moves_suggests_nothing_and_says_what_to_try() -> None:
    finding = find([Tried(rate, 5.0) for rate in RATES])
    assert finding.suggested is None
    assert "try higher learning rates or more steps" in finding.reason


def test_a_loss_that_is_never_finite_suggests_nothing() -> None:
    finding = find([Tried(RATES[0], math.nan)])
    assert (finding.suggested, finding.points) == (None, ())


def test_a_loss_that_still_falls_at_the_end_says_so() -> None:
    assert "a search with higher rates may find a better one" in find(curve(bottom=10.0)).reason


@pytest.mark.long
def test_the_task_tries_every_rate_and_shows_each_while_it_runs(tmp_path: Path) -> None:
    """As a process, like a job: result.json holds the answer, the run directory what happened."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} times it went, {n * 7 % 31} times it came.\n" for n in range(300)))
    train = {
        "device": "cpu",
        "batch_size": 8,
        "model": {"preset": "nano", "context_length": 32},
        "data": {"train_path": str(text)},
    }
    home = tmp_path / "task"
    home.mkdir()
    task = task_from({"kind": "find_learning_rate", "train": train, "lowest": 1e-5, "steps": 30})
    for name, content in task_files(task, "0").items():
        (home / name).write_text(content)
    done = subprocess.run([sys.executable, "task.py"], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((home / "result.json").read_text())
    assert [point["learning_rate"] for point in result["points"]] == growing_rates(1e-5, 1e-1, 30)
    assert 1e-4 < result["suggested"] < 1e-1
    assert result["points"][-1]["loss"] < result["points"][0]["loss"]
    seen = [event for event in read_all(home) if event.kind == "metric"]
    drawn = {name for event in seen for name, _ in event.series()}
    assert {"finder/loss", "finder/learning_rate"} <= drawn
    assert max(event.step or 0 for event in seen) == 30
    assert not (home / "checkpoints").exists()


def trained_to(config: TrainConfig, dataset: Dataset, rate: float, steps: int) -> float:
    """The evaluation loss after a whole short training at a rate."""
    model = Model.open(config, vocab_size=dataset.vocab_size)
    executor = move_to_devices(config, model, steps).executor
    loader = Loader(dataset.train, batch_size=config.batch_size, accumulation=1, seed=config.seed)
    schedule = Schedule.create(config.schedule, steps)
    step = 0
    while step < steps:
        for batch in loader.rest_of_epoch():
            step += 1
            if not math.isfinite(float(executor.forward_backward(batch))):
                return math.inf
            executor.optimizer_step(schedule.learning_rate(rate, step))
            if step == steps:
                break
    assert dataset.eval is not None
    return evaluate(executor, dataset.eval, batch_size=config.batch_size, max_batches=10).loss


@pytest.mark.long
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_whole_trainings_do_best_within_three_times_the_suggested_rate(
    tmp_path: Path, method: str, seed: int
) -> None:
    (tmp_path / "text.txt").write_text(inspect.getsource(argparse)[:60_000])
    config = TrainConfig.model_validate(
        {
            "seed": seed,
            "method": method,
            "device": "cpu",
            "batch_size": 8,
            "model": {
                "path": str(make_tiny_model(tmp_path / "model", chat_template=False)),
                "context_length": 64,
            },
            "data": {"train_path": str(tmp_path / "text.txt")},
        }
    )
    dataset = Dataset.open(config.data, config.context_length)
    losses = {rate: trained_to(config, dataset, rate, 60) for rate in growing_rates(1e-3, 1e-1, 9)}
    best = min(losses, key=losses.__getitem__)

    model = Model.open(config, vocab_size=dataset.vocab_size)
    loader = Loader(dataset.train, batch_size=config.batch_size, accumulation=1, seed=seed)
    finding = find(list(sweep(move_to_devices(config, model, 60).executor, loader, RATES)))
    assert finding.suggested is not None
    assert best / 3 <= finding.suggested <= best * 3, (finding.suggested, losses)
