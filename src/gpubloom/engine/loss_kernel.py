"""Triton kernel of the loss and its gradient: one program for each position, two passes over its logits.

The second pass finds them in the GPU's cache, so memory is read once and written once. Shape letters as in
`loss.py`.
"""

# The parameters of kernels are what Triton makes of them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpubloom.engine.data.rows import IGNORED

# Logits of a tile, and warps: what was fastest on an H200 for vocabularies of 50,000 and 152,000.
_TILE, _WARPS = 8192, 16


@triton.jit
def _cross_entropy_kernel(
    logits_ptr, targets_ptr, scale_ptr, loss_ptr, grad_ptr, vocabulary, ignored,
    TILE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + n)
    logits_ptr += n * vocabulary
    grad_ptr += n * vocabulary
    tile = tl.arange(0, TILE)
    dtype = grad_ptr.dtype.element_ty
    if target == ignored:
        tl.store(loss_ptr + n, 0.0)
        for start in range(0, vocabulary, TILE):
            tl.store(grad_ptr + start + tile, tl.zeros((TILE,), dtype), mask=start + tile < vocabulary)
        return
    # Not infinite: a tile may hold nothing but tokens that a model rules out.
    running_max = -3.4e38
    total = 0.0
    for start in range(0, vocabulary, TILE):
        v = start + tile
        logits = tl.load(logits_ptr + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(running_max, tl.max(logits, axis=0))
        total = total * tl.exp(running_max - larger) + tl.sum(tl.exp(logits - larger), axis=0)
        running_max = larger
    logsumexp = running_max + tl.log(total)
    # A token that the model does not have makes the loss not finite, which ends the run.
    is_token = (target >= 0) & (target < vocabulary)
    wanted = tl.load(logits_ptr + target, mask=is_token, other=float("nan")).to(tl.float32)
    tl.store(loss_ptr + n, logsumexp - wanted)
    scale = tl.load(scale_ptr)
    for start in range(0, vocabulary, TILE):
        v = start + tile
        logits = tl.load(logits_ptr + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(logits - logsumexp) - tl.where(v == target, 1.0, 0.0)
        tl.store(grad_ptr + v, (gradient * scale).to(dtype), mask=v < vocabulary)


def cross_entropy(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each position, zero where its target is IGNORED, and the gradient of scale · their sum."""
    positions, vocabulary = logits_NV.shape
    loss_N = torch.empty(positions, dtype=torch.float32, device=logits_NV.device)
    grad_NV = torch.empty(positions, vocabulary, dtype=logits_NV.dtype, device=logits_NV.device)
    _cross_entropy_kernel[(positions,)](
        logits_NV.contiguous(),
        targets_N.contiguous(),
        scale,
        loss_N,
        grad_NV,
        vocabulary,
        IGNORED,
        TILE=_TILE,
        num_warps=_WARPS,
    )
    return loss_N, grad_NV
