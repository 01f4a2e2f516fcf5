"""The task find_learning_rate: a short training whose learning rate grows, and the rate its losses suggest.

At low rates nothing happens; then the loss falls, stops falling, and rises. A training does best near the
lowest rate at which it has all but stopped falling: lower ones learn more slowly, and with higher ones steps
are too long. How near was measured against whole trainings at many rates (docs/backends.md).

The sweep uses the trainer's own model, data and placement, so its result holds for the training that follows.
It saves no checkpoint: what the model learned ends with the process.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpubloom.engine.data import Batch, Dataset, Loader
from gpubloom.engine.executors import Executor
from gpubloom.engine.model import Model
from gpubloom.engine.tasks.session import TaskSession
from gpubloom.engine.trainer import Trainer
from gpubloom.plan import TrainConfig
from gpubloom.plan.tasks import FindLearningRateTask

# A loss so many times the lowest one will not come back.
_DIVERGED = 4.0
# How much of its whole fall the loss must have behind it, and where a training does best from there: a little
# lower, as a rate that is too high costs more than one that is too low.
_SHARE_OF_FALL = 0.95
_LOWER = 0.85
# Losses of single batches differ by the batch: they are averaged over neighbouring rates, with this standard
# deviation in powers of ten.
_SMOOTHING_DECADES = 0.25
# A smaller fall is not told from chance.
_LEAST_FALL = 0.002


@dataclass(frozen=True)
class Tried:
    """One step: its rate, and the loss before it."""

    learning_rate: float
    loss: float


@dataclass(frozen=True)
class Point:
    """One step as it is drawn."""

    learning_rate: float
    loss: float
    smoothed: float


@dataclass(frozen=True)
class Finding:
    """What a sweep says. `suggested` is None when it says nothing; `reason` is a sentence either way."""

    points: tuple[Point, ...]
    suggested: float | None
    reason: str
    diverged_at: float | None


def growing_rates(lowest: float, highest: float, steps: int) -> list[float]:
    """Each the same number of times the one before."""
    return [lowest * (highest / lowest) ** (step / (steps - 1)) for step in range(steps)]


def sweep(executor: Executor, loader: Loader, rates: Sequence[float]) -> Iterator[Tried]:
    """Trains one step at each rate, until the loss diverges."""
    lowest = math.inf
    for rate, batch in zip(rates, _batches(loader), strict=False):
        loss = float(executor.forward_backward(batch))
        yield Tried(rate, loss)
        lowest = min(lowest, loss)
        if _has_diverged(loss, lowest):
            return
        executor.optimizer_step(rate)


def find(tried: Sequence[Tried]) -> Finding:
    """Draws the curve through what was tried and suggests a rate."""
    finite = [each for each in tried if math.isfinite(each.loss)]
    if len(finite) < 3:
        reason = "The loss was NaN or infinite from the start: check the data and the model."
        return Finding((), None, reason, tried[-1].learning_rate)
    last = tried[-1]
    diverged = _has_diverged(last.loss, min(each.loss for each in finite))
    diverged_at = last.learning_rate if diverged else None
    rates = [each.learning_rate for each in finite]
    smoothed = _smoothed(rates, [each.loss for each in finite])
    points = tuple(
        Point(each.learning_rate, each.loss, value) for each, value in zip(finite, smoothed, strict=True)
    )
    suggested, reason = _suggest(rates, smoothed, diverged_at)
    return Finding(points, suggested, reason, diverged_at)


def _suggest(
    rates: Sequence[float], smoothed: Sequence[float], diverged_at: float | None
) -> tuple[float | None, str]:
    # Where nothing is learned yet: the first power of ten.
    flat = [loss for rate, loss in zip(rates, smoothed, strict=True) if rate < 10 * rates[0]]
    start, lowest = sum(flat) / len(flat), min(smoothed)
    fall = start - lowest
    if fall < _LEAST_FALL * start:
        return None, (
            f"The loss stayed near {start:.3g} for all learning rates from {rates[0]:.1g} to "
            f"{rates[-1]:.1g}: try higher learning rates or more steps. The model may also have nothing to "
            "learn from this data."
        )
    enough = start - _SHARE_OF_FALL * fall
    reached = next(rate for rate, loss in zip(rates, smoothed, strict=True) if loss <= enough)
    suggested = float(f"{_LOWER * reached:.1e}")
    reason = (
        f"The loss fell from {start:.3g} to {lowest:.3g}, with {_SHARE_OF_FALL:.0%} of this drop reached at "
        f"learning rate {reached:.2g}: a slightly lower learning rate is safe, and a higher one gains little"
    )
    if diverged_at is not None:
        return suggested, f"{reason}. The loss diverged at {diverged_at:.2g}."
    if smoothed[-1] == lowest:
        more = (
            "The loss still fell at the highest learning rate: a search with higher rates may find a better "
            "one."
        )
        return suggested, f"{reason}. {more}"
    return suggested, f"{reason}."


def _has_diverged(loss: float, lowest: float) -> bool:
    return not loss <= _DIVERGED * lowest


def _smoothed(rates: Sequence[float], losses: Sequence[float]) -> list[float]:
    """Averages over neighbouring rates, nearer ones counting more."""
    logarithms = [math.log10(rate) for rate in rates]
    found = []
    for center in logarithms:
        weights = [math.exp(-0.5 * ((center - other) / _SMOOTHING_DECADES) ** 2) for other in logarithms]
        found.append(sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights))
    return found


def _batches(loader: Loader) -> Iterator[Batch]:
    while True:
        yield from loader.rest_of_epoch()


def run(task: FindLearningRateTask, session: TaskSession) -> dict[str, Any]:
    """The curve and the suggestion."""
    trainer = _trainer(task.train, task.steps, session)
    reporter, rates = session.reporter, growing_rates(task.lowest, task.highest, task.steps)
    session.keep_going()
    reporter.phase("train")
    tried = []
    for step, each in enumerate(sweep(trainer.executor, trainer.loader, rates), start=1):
        tried.append(each)
        reporter.metrics({"finder/loss": each.loss, "finder/learning_rate": each.learning_rate}, step=step)
        reporter.progress(step, task.steps)
        reporter.heartbeat(expect_next_in=600.0)
        session.keep_going()
    found = find(tried)
    reporter.log(found.reason)
    reporter.phase("idle")
    return asdict(found)


def _trainer(config: TrainConfig, steps: int, session: TaskSession) -> Trainer:
    # Another backend trains with the same mathematics; here the engine does the few steps for all of them.
    config = config.model_copy(update={"backend": "engine", "max_steps": steps})
    dataset = Dataset.open(config.data, config.context_length)
    model = Model.open(config, vocab_size=dataset.vocab_size, end_of_text=dataset.tokenizer.end_of_text)
    for note in model.notes:
        session.reporter.log(note, level="warning")
    return Trainer(config, model, dataset, session.reporter)
