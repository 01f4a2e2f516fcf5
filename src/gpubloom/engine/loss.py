"""The training loss: summed cross-entropy over the targets that count, and its scale in fp16.

The executors compute it chunk by chunk (executors/blocks/functions.py), evaluation by document. `LossScale`
keeps fp16 gradients in range; in any other precision it is one and nothing waits for it.

Shape letters: N positions of any rows, V vocabulary.
"""

import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.hardware import Compute
from gpubloom.errors import CodedError

_FIRST = 65_536.0
_LARGEST = 2.0**24
_GROW_AFTER = 2_000
# Known when this file is imported: compiled code cannot look for it.
_HAS_TRITON = importlib.util.find_spec("triton") is not None


class NotFinite(CodedError, FloatingPointError):
    """A loss or a gradient is infinite or not a number: training on would spoil the weights."""

    code = "not_finite"


def summed_cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Cross-entropy in fp32, summed over all targets that are not IGNORED."""
    return F.cross_entropy(logits_NV.float(), targets_N, reduction="sum", ignore_index=IGNORED)


def has_fused_gradient(logits_NV: Tensor) -> bool:
    """Whether `loss_and_gradient` can be asked for: a GPU without bf16 may not run its kernel."""
    return _HAS_TRITON and logits_NV.is_cuda and logits_NV.dtype == torch.bfloat16


def loss_and_gradient(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """`summed_cross_entropy`, and the gradient of scale · loss in the precision of the logits.

    Nothing of it exists in fp32: the kernel reads a row, which is then near enough to be read again.
    """
    loss_N, grad_NV = _cross_entropy(logits_NV, targets_N, scale)
    return loss_N.sum(), grad_NV


# An operator, which the compiler takes as it is. Triton is loaded when it runs.
@torch.library.custom_op("gpubloom::cross_entropy", mutates_args=(), device_types="cuda")
def _cross_entropy(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    from gpubloom.engine.loss_kernel import cross_entropy

    return cross_entropy(logits_NV, targets_N, scale)


@_cross_entropy.register_fake
def _(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    loss_N = logits_NV.new_empty(len(logits_NV), dtype=torch.float32)
    return loss_N, logits_NV.new_empty(logits_NV.shape)


class LossScale:
    """Halves when a gradient overflowed, which also drops that step; doubles after many that did not."""

    def __init__(self, compute: Compute) -> None:
        self._used = compute.dtype == torch.float16
        self.value = _FIRST if self._used else 1.0
        self._good = 0

    @property
    def inverse(self) -> float:
        return 1.0 / self.value

    def accepts(self, norm: Tensor) -> bool:
        """Whether a step with this gradient norm may be taken."""
        if not self._used:
            return True
        if not bool(torch.isfinite(norm)):
            self.value /= 2
            self._good = 0
            if self.value < 1:
                raise NotFinite(
                    "Gradients overflow in fp16 even without loss scaling: use precision bf16 or fp32, "
                    "or a lower learning_rate."
                )
            return False
        self._good += 1
        if self._good >= _GROW_AFTER and self.value < _LARGEST:
            self.value *= 2
            self._good = 0
        return True

    def state(self) -> dict[str, float]:
        """Empty when nothing is scaled."""
        return {"value": self.value, "good": self._good} if self._used else {}

    def restore(self, state: dict[str, float]) -> None:
        # A run may continue on another machine in another precision.
        if self._used and state:
            self.value, self._good = state["value"], int(state["good"])
