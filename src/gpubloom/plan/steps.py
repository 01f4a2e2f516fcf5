"""How many optimizer steps a run has, for the plan, the pre-flight and the trainer's loader."""

import math
from dataclasses import dataclass

from gpubloom.plan.config import TrainConfig
from gpubloom.traincard.findings import Finding

# With fewer, a run on examples hardly changes its model.
_FEW_STEPS = 20


@dataclass(frozen=True, slots=True)
class CountedData:
    """The training examples of an epoch as a pre-flight counted them, with this max sequence length."""

    sequences: int
    tokens: int
    context_length: int


# Counted, or a number of training tokens that is estimated from file sizes; None: not known.
EpochData = CountedData | int | None


def filled_batch_size(sequences: int, batch_size: int, accumulation: int, processes: int) -> int:
    """The batch size of a run on examples: rows that stay empty in every batch would only cost time."""
    return min(batch_size, -(-sequences // (accumulation * processes)))


def steps_of(config: TrainConfig, sequences: int, processes: int | None = None) -> int:
    """Optimizer steps of a whole run that trains on so many packed sequences of examples in an epoch."""
    shared = config.accumulation * (processes or config.said_processes)
    rows = filled_batch_size(sequences, config.batch_size, 1, shared) * shared
    steps = config.epochs * math.ceil(sequences / rows)
    return min(steps, config.max_steps or steps)


def few_steps(steps: int) -> Finding | None:
    """That a run on examples has too few steps to learn much, if so."""
    if steps >= _FEW_STEPS:
        return None
    return Finding(
        "few_steps",
        "warning",
        f"The run has only {steps} optimizer {'step' if steps == 1 else 'steps'}.",
        {"steps": steps},
        next_step="Use more epochs or a smaller batch size to train longer.",
    )
