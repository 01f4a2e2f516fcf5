"""What the trainer asks of an executor: run a step, update the weights, hand out and take back its state.

Where weights, gradients and moments live between these calls is the executor's own business.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from gpubloom.engine.data import Batch


@dataclass(frozen=True)
class ExecutorState:
    """FP32 weights and optimizer tensors by name, and how many updates the optimizer has made."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    updates: int


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

    def state(self) -> ExecutorState:
        """Everything a checkpoint needs. Tensors are the live ones: use them before the next step."""

    def restore(self, state: ExecutorState) -> None:
        """Continues from a state with the same names and shapes."""
