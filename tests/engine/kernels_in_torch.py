"""What the kernels of training compute, in torch."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, silu

from gpubloom.engine.data.rows import IGNORED


def swiglu(
    gate: Tensor, up: Tensor, low_gate: Tensor, low_up: Tensor, b_gate: Tensor, b_up: Tensor
) -> Tensor:
    return silu(gate + low_gate @ b_gate.t()) * (up + low_up @ b_up.t())


def swiglu_gradients(
    grad: Tensor, low_down: Tensor, a_down: Tensor, gate: Tensor, up: Tensor, *narrow: Tensor
) -> tuple[Tensor, ...]:
    """Of gate, up, B of gate and up, and A of down."""
    low_gate, low_up, b_gate, b_up = narrow
    gate, up = gate + low_gate @ b_gate.t(), up + low_up @ b_up.t()
    grad, share = grad + low_down @ a_down, torch.sigmoid(gate)
    gated = gate * share
    d_gate, d_up = grad * up * (share + gated * (1 - share)), grad * gated
    return d_gate, d_up, d_gate.t() @ low_gate, d_up.t() @ low_up, low_down.t() @ (gated * up)


def loss_and_gradient(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Each position's loss, and the gradient of scale times their sum."""
    wide = logits_NV.float()
    loss_N = cross_entropy(wide, targets_N, reduction="none", ignore_index=IGNORED)
    counts_N1 = (targets_N != IGNORED)[:, None]
    wanted_NV = one_hot(targets_N.clamp(min=0), logits_NV.shape[1])
    grad_NV = scale * counts_N1 * (torch.softmax(wide, dim=1) - wanted_NV)
    return loss_N, grad_NV.to(logits_NV.dtype)
