"""What training asks of an executor: run a step, update the weights, evaluate, take up state.

Where weights, gradients and moments live between these calls is the executor's own business; `form` says how
they are handed out: as whole blocks, or as parts of each tensor.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks.snapshot import MOMENTS, WEIGHTS, Part, Snapshot
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.executors.step import StepMeasures
from gpubloom.plan.optimizer_config import OptimizerName


class Executor(Protocol):
    """Runs the blocks of one model."""

    @property
    def form(self) -> Literal["block", "sharded"]:
        """Whether this process has the whole state, or a part of it."""

    @property
    def updates(self) -> int:
        """How often the weights were updated."""

    @property
    def loss_scale(self) -> dict[str, float]:
        """The state of loss scaling; empty where there is none."""

    @property
    def optimizer_name(self) -> OptimizerName:
        """The optimizer whose state is in a checkpoint."""

    @property
    def optimizer_description(self) -> str:
        """Which code updates weights in host memory."""

    def forward_backward(self, batch: Batch) -> Tensor:
        """Mean loss over all targets of the step, on the device; leaves the step's gradient behind."""

    def optimizer_step(self, lr: float) -> Tensor:
        """Clips by global norm, updates the weights, drops the gradient; returns the norm before clipping."""

    def tune(self, *, weight_decay: float, clip_norm: float) -> None:
        """Change settings between steps."""

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed loss and number of correct tokens, without a gradient."""

    def next_logits(self, tokens_1T: Tensor, length: int) -> Tensor:
        """Logits (1, V) of what follows the first `length` tokens; what stands behind them does not count."""

    def last_step(self) -> Callable[[], StepMeasures] | None:
        """Reads what the step before the present one waited for and sent, where that can be measured.

        To be called once the present step's loss is known; until then nothing is read.
        """

    def continue_from(self, updates: int, loss_scale: dict[str, float]) -> None:
        """Continue from a state that was loaded into its tensors: restores the counters."""

    def close(self) -> None:
        """End the threads and processes of the executor, which is then unusable."""


class KeepsBlocks(Executor, Protocol):
    """An executor that has the whole state, block by block."""

    @property
    def stores(self) -> Sequence[BlockStore]:
        """The blocks' masters and moments, to be read after `settle` and written before `continue_from`."""

    def settle(self) -> None:
        """Wait until all updates are done, so that the state can be read."""

    def snapshot(self, buffer_bytes: int, streams: Sequence[Sequence[Part]] = (WEIGHTS, MOMENTS)) -> Snapshot:
        """A snapshot of the current state, which other threads read while training continues."""
