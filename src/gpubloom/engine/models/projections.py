"""Linear layers that read the same input, as one product.

On a GPU a product reads its whole input and, in the backward pass, writes a gradient as large. Three layers
with one input do that three times; one product of their joined weights does it once. Joining copies the
weights, so it is done where they are smaller than what is saved. The same holds for the narrow matrices of
adapters, always.

Shape letters: B rows, T positions, D inputs, N outputs, R ranks of the adapters, one after the other.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.models.lora import has_adapter, has_dropout, lowered, raised


def project_together(x_BTD: Tensor, linears: Sequence[nn.Linear]) -> list[Tensor]:
    """What each layer makes of x, its adapter included."""
    if not is_on_gpu(x_BTD):
        return [linear(x_BTD) for linear in linears]
    outputs = _joined(x_BTD, linears) if _is_worth_it(x_BTD, linears) else _one_by_one(x_BTD, linears)
    low = iter(lowered_together(x_BTD, [linear for linear in linears if has_adapter(linear)]))
    return [
        y_BTN + raised(linear, next(low)) if has_adapter(linear) else y_BTN
        for linear, y_BTN in zip(linears, outputs, strict=True)
    ]


def lowered_together(x_BTD: Tensor, adapted: Sequence[Any]) -> list[Tensor]:
    """What the first matrix of each adapter makes of x."""
    if len(adapted) < 2 or any(has_dropout(linear) for linear in adapted):
        return [lowered(linear, x_BTD) for linear in adapted]
    low_BTR = F.linear(x_BTD, torch.cat([linear.lora_A.weight for linear in adapted]))
    return list(torch.split(low_BTR, [len(linear.lora_A.weight) for linear in adapted], dim=-1))


def without_adapter(linear: nn.Linear, x_BTD: Tensor) -> Tensor:
    """What the layer itself makes of x, in whatever precision it computes."""
    # Its adapter is a hook, which only a call of the module runs.
    return type(linear).forward(linear, x_BTD)


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _one_by_one(x_BTD: Tensor, linears: Sequence[nn.Linear]) -> list[Tensor]:
    return [without_adapter(linear, x_BTD) for linear in linears]


def _joined(x_BTD: Tensor, linears: Sequence[Any]) -> list[Tensor]:
    bias_N = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    y_BTN = F.linear(x_BTD, torch.cat([linear.weight for linear in linears]), bias_N)
    parts = _Parts.apply(y_BTN, *[linear.out_features for linear in linears])  # type: ignore[no-untyped-call]
    return list(parts)


class _Parts(torch.autograd.Function):
    """Splits the last dimension, as torch.split does.

    Its gradient is joined by an operator of its own. torch's compiler may compute all parts again for every
    element of what it joins, and choose one: with rotations in them that took four times as long as the
    product that follows.
    """

    @staticmethod
    def forward(ctx: Any, y_BTN: Tensor, *sizes: int) -> tuple[Tensor, ...]:
        ctx.parts = len(sizes)
        return torch.split(y_BTN, list(sizes), dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (_join(gradients), *[None] * ctx.parts)


@torch.library.custom_op("gpubloom::join", mutates_args=())
def _join(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts), dim=-1)


@_join.register_fake
def _(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].new_empty(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))


def _is_worth_it(x_BTD: Tensor, linears: Sequence[Any]) -> bool:
    """Whether the joined weights have fewer rows than the input would be read again."""
    read_again = (len(linears) - 1) * x_BTD.shape[:-1].numel()
    return (
        all(type(linear) is nn.Linear for linear in linears)
        and len({linear.bias is None for linear in linears}) == 1
        and sum(linear.out_features for linear in linears) < read_again
    )
