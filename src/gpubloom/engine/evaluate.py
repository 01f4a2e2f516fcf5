"""Loss, perplexity and accuracy of a model on held-out rows. Changes nothing, draws no random number."""

import math
from dataclasses import dataclass

from gpubloom.engine.data import Rows
from gpubloom.engine.data.loader import eval_batches
from gpubloom.engine.executors import Executor


@dataclass(frozen=True)
class Evaluation:
    """Averages over tokens."""

    loss: float
    perplexity: float
    accuracy: float

    def metrics(self) -> dict[str, float]:
        return {"eval/loss": self.loss, "eval/perplexity": self.perplexity, "eval/accuracy": self.accuracy}


def evaluate(executor: Executor, rows: Rows, *, batch_size: int, max_batches: int) -> Evaluation:
    """Evaluates at most max_batches, spread evenly over the data."""
    loss, correct, tokens = 0.0, 0, 0
    for batch in eval_batches(rows, batch_size=batch_size, max_batches=max_batches):
        batch_loss, batch_correct = executor.evaluate(batch)
        loss += float(batch_loss)
        correct += int(batch_correct)
        tokens += batch.trained_count
    mean = loss / tokens
    # exp overflows long before a loss stops being comparable.
    return Evaluation(mean, math.exp(mean) if mean < 700 else math.inf, correct / tokens)
