"""A callback: ends the training when the evaluation has not become better for a while."""

from typing import Any

from gpubloom.plugins import StopTraining

EVALUATIONS = 3


class Patience:
    def __init__(self, config: dict[str, Any]) -> None:
        self.best = float("inf")
        self.waited = 0

    def on_evaluate(self, step: int, metrics: dict[str, float]) -> None:
        loss = metrics["eval/loss"]
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(self.best, loss)
        if self.waited >= EVALUATIONS:
            raise StopTraining(
                f"the evaluation has not become better than {self.best:.4f} since {self.waited}"
            )
