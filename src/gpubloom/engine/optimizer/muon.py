"""Muon: momentum whose matrix is made nearly orthogonal before it is added to the weights.

The update has as large a root mean square as one of AdamW (0.2 · √(larger side) times an orthogonal matrix),
so that learning rate and weight decay of AdamW suit it. Momentum is FP32, products are bf16, in torch's own
order of operations (torch.optim.Muon, adjust_lr_fn "match_rms_adamw").
"""

import math

import torch
from torch import Tensor

from gpubloom.engine.optimizer.host import AdamWStep

_STEPS = 5
_A, _B, _C = 3.4445, -4.7750, 2.0315
_SMALLEST_NORM = 1e-7


@torch.no_grad()
def muon_update(
    master: Tensor, momentum: Tensor, gradient: Tensor, step: AdamWStep, mu: float, scale: Tensor | float
) -> None:
    """One update in place of a matrix (or of several, in the last two dimensions), with Nesterov momentum."""
    scaled = gradient.to(torch.float32) * scale
    momentum.lerp_(scaled, 1 - mu)
    update = orthogonalized(scaled.lerp_(momentum, mu))
    master.mul_(1 - step.lr * step.weight_decay)
    master.add_(update, alpha=-step.lr * 0.2 * math.sqrt(max(master.shape[-2:])))


def orthogonalized(matrix: Tensor) -> Tensor:
    """Singular values near 1 by five Newton-Schulz steps, in bf16."""
    if matrix.ndim > 3:
        return orthogonalized(matrix.flatten(0, -3)).view(matrix.shape)
    x = matrix.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=_SMALLEST_NORM)
    product = torch.addmm if x.ndim == 2 else torch.baddbmm
    for _ in range(_STEPS):
        gram = x @ x.mT
        polynomial = product(gram, gram, gram, beta=_B, alpha=_C)
        x = product(x, polynomial, x, beta=_A)
    return x.mT if tall else x
