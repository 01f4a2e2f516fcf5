"""Runs made at random, each from its own number: spikes, NaN, resumes, several ranks, rare evaluations."""

import math
import random
from pathlib import Path

from gpubloom.traincard import Reporter

LONG_RUNS = (3, 11, 17)


def generate_run(run_dir: Path, seed: int) -> Path:
    """A run of a few dozen or, for some seeds, a few thousand steps; up to four attempts and four ranks."""
    made = random.Random(seed)
    steps = 6_000 if seed in LONG_RUNS else made.randint(2, 180)
    attempts = made.choice([1, 1, 2, 4])
    ranks = made.choice([1, 1, 2, 4])
    ends = [*sorted(made.randint(1, steps) for _ in range(attempts - 1)), steps]
    diverges_at = made.randint(1, steps) if made.random() < 0.4 else None
    begin = 0
    for attempt, end in enumerate(ends, start=1):
        for rank in range(ranks):
            with Reporter(run_dir, rank=rank, world_size=ranks, telemetry_seconds=0) as reporter:
                if attempt > 1:
                    reporter.resumed(begin)
                for step in range(begin + 1, end + 1):
                    _report(reporter, made, step, rank, diverges_at)
                    if step % 400 == 0:
                        # The queue is bounded: no loop is this fast.
                        reporter.flush()
                reporter.progress(end, steps, epoch=end / max(1, steps) * 2, epochs=2)
                reporter.finish("completed" if attempt == attempts else "preempted")
        begin = max(0, end - made.randint(0, 30))
    return run_dir


def _report(reporter: Reporter, made: random.Random, step: int, rank: int, diverges_at: int | None) -> None:
    if rank > 0:
        reporter.metric("train/step_seconds", 0.1 + made.random() / 10, step)
        return
    loss = 1 + 3 / (1 + step / 50) + made.random() / 4
    if made.random() < 0.02:
        loss *= 40
    if diverges_at is not None and 0 <= step - diverges_at < 5:
        loss = made.choice([math.nan, math.inf])
    reporter.metrics(
        {
            "train/loss": loss,
            "train/learning_rate": 1e-4 / step,
            "train/grad_norm": made.expovariate(1),
            "train/samples_per_second": 30 + made.random(),
            "train/step_seconds": 0.1 + made.random() / 10,
        },
        step,
    )
    if step % 25 == 0:
        evaluated = {"eval/loss": 1.1 + 3 / (1 + step / 50), "eval/samples_per_second": 900 + made.random()}
        reporter.metrics(evaluated, step)
        reporter.checkpoint(f"checkpoints/step-{step}", step=step, metrics=evaluated)
