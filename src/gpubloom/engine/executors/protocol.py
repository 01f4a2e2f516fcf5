"""What training asks of an executor: run a step, update the weights, evaluate.

Where weights, gradients and moments live between these calls is the executor's own business.
"""

from typing import Protocol

from torch import Tensor

from gpubloom.engine.data import Batch


class Executor(Protocol):
    """Runs the blocks of one model."""

    def forward_backward(self, batch: Batch) -> Tensor:
        """Mean loss over all micro-batches, on the device; leaves the step's gradient behind."""

    def optimizer_step(self, lr: float) -> Tensor:
        """Clips by global norm, updates the weights, drops the gradient; returns the norm before clipping."""

    def tune(self, *, weight_decay: float, clip_norm: float) -> None:
        """Settings that may change between steps."""

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed loss and number of correct tokens, without a gradient."""
