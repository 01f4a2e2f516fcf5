"""Adafactor: second moments as mean squares of rows and columns, a few numbers instead of one per weight.

No first moment, no learning rate of its own, and the update is clipped to a root mean square of 1: what
transformers' Adafactor does with scale_parameter and relative_step off. A matrix is gone through in pieces of
whole rows, three times, so that nothing of its size is ever made beside it.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gpubloom.engine.optimizer.encoding import Flat
from gpubloom.engine.optimizer.host import AdamWStep

_SMALLEST_SQUARE = 1e-30
_DECAY = -0.8
# Elements of a piece: on a CPU it stays in the caches.
_CPU_PIECE, _GPU_PIECE = 1 << 20, 1 << 24


@torch.no_grad()
def adafactor_update(
    master: Flat,
    shape: tuple[int, ...],
    rows: Tensor,
    columns: Tensor | None,
    gradient: Tensor,
    step: AdamWStep,
    scale: Tensor | float,
) -> None:
    """One update in place of a flat tensor of this shape; a vector has no columns."""
    rest = step.updates**_DECAY
    if columns is None:
        scaled = gradient.to(torch.float32) * scale
        rows.mul_(1 - rest).add_(scaled.square().add_(_SMALLEST_SQUARE), alpha=rest)
        update = scaled.mul_(rows.rsqrt())
        _apply(master, update, step, _clipping(update.square().sum(), len(update)))
        return
    height, width = shape[-2:]
    gradient = gradient.view(-1, height, width)
    rows, columns = rows.view(-1, height), columns.view(-1, width)
    pieces = list(_pieces(gradient))
    # Kept in this order: every placement adds up the same numbers.
    sums = torch.zeros_like(columns)
    for each, some in pieces:
        squares = (gradient[each, some].to(torch.float32) * scale).square_().add_(_SMALLEST_SQUARE)
        rows[each, some].mul_(1 - rest).add_(squares.mean(dim=-1), alpha=rest)
        sums[each] += squares.sum(dim=-2)
    columns.mul_(1 - rest).add_(sums.div_(height), alpha=rest)
    row_factors = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_()
    column_factors = columns.rsqrt()

    def update_of(each: slice, some: slice) -> Tensor:
        found = gradient[each, some].to(torch.float32) * scale
        return found.mul_(row_factors[each, some, None]).mul_(column_factors[each, None])

    total = torch.zeros((), device=gradient.device)
    for piece in pieces:
        total += update_of(*piece).square_().sum()
    clipping = _clipping(total, gradient.numel())
    for each, some in pieces:
        # Some whole matrices or some rows of one: in the flat array, one after the other.
        update = update_of(each, some).flatten()
        start = (each.start * height + some.start) * width
        _apply(master.part(slice(start, start + len(update))), update, step, clipping)


def _clipping(squares: Tensor, count: int) -> Tensor:
    """What an update is divided by, so that its root mean square is 1 at most."""
    return (squares.sqrt() / math.sqrt(count)).clamp_(min=1.0)


def _apply(master: Flat, update: Tensor, step: AdamWStep, clipping: Tensor) -> None:
    values = master.read()
    if step.weight_decay:
        values.mul_(1 - step.lr * step.weight_decay)
    values.sub_(update.div_(clipping), alpha=step.lr)
    master.write(values)


def _pieces(matrices: Tensor) -> Iterator[tuple[slice, slice]]:
    """Some whole matrices, or some rows of one."""
    count, height, width = matrices.shape
    size = _CPU_PIECE if matrices.device.type == "cpu" else _GPU_PIECE
    together, some = max(1, size // (height * width)), max(1, size // width)
    for first in range(0, count, together):
        for begin in range(0, height, height if together > 1 else some):
            yield (
                slice(first, first + together),
                slice(begin, height if together > 1 else min(height, begin + some)),
            )
