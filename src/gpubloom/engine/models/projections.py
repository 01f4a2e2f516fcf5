"""Linear layers that read the same input, as one product.

On a GPU a product reads its whole input and, in the backward pass, writes a gradient as large. Three layers
with one input do that three times; one product of their joined weights does it once. Joining copies the
weights, so it is done where they have fewer rows than the positions that would be read again. The same holds
for the narrow matrices of adapters, always.

Shape letters: B rows, T positions, D inputs, N outputs, R ranks of the adapters, one after the other.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.models.lora import has_adapter, has_dropout, lora_down, lora_up


def project_together(x_BTD: Tensor, linears: Sequence[nn.Linear]) -> list[Tensor]:
    """What each layer makes of x, its adapter included."""
    if not is_on_gpu(x_BTD):
        return [linear(x_BTD) for linear in linears]
    outputs = _joined(x_BTD, linears) if _is_worth_it(x_BTD, linears) else _one_by_one(x_BTD, linears)
    low = iter(lora_down_together(x_BTD, [linear for linear in linears if has_adapter(linear)]))
    return [
        y_BTN + lora_up(linear, next(low)) if has_adapter(linear) else y_BTN
        for linear, y_BTN in zip(linears, outputs, strict=True)
    ]


def lora_down_together(x_BTD: Tensor, adapted: Sequence[Any]) -> list[Tensor]:
    """What the first matrix of each adapter makes of x."""
    if len(adapted) < 2 or any(has_dropout(linear) for linear in adapted):
        return [lora_down(linear, x_BTD) for linear in adapted]
    low_BTR = F.linear(x_BTD, torch.cat([linear.lora_A.weight for linear in adapted]))
    return list(torch.split(low_BTR, [len(linear.lora_A.weight) for linear in adapted], dim=-1))


def without_adapter(linear: nn.Linear, x_BTD: Tensor) -> Tensor:
    """What the layer itself makes of x, in whatever precision it computes."""
    # Its adapter is a hook, and the only one: a call of the module would run it.
    return type(linear).forward(linear, x_BTD)


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _one_by_one(x_BTD: Tensor, linears: Sequence[nn.Linear]) -> list[Tensor]:
    return [without_adapter(linear, x_BTD) for linear in linears]


def _joined(x_BTD: Tensor, linears: Sequence[Any]) -> list[Tensor]:
    bias_N = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    outputs = _JoinedLinear.apply(x_BTD, bias_N, *[linear.weight for linear in linears])  # type: ignore[no-untyped-call]
    return list(outputs)


class _JoinedLinear(torch.autograd.Function):
    """x · (W₁ over W₂ over …)ᵀ + bias, split into the parts of each W.

    Keeps the weights for the backward pass and not what they were joined to, which nobody else has. The
    gradients of the parts are joined by the operator below: torch's compiler may compute all of them again
    for every element of what it joins, and choose one. With rotations in them that took four times as long
    as the product that follows.
    """

    @staticmethod
    def forward(ctx: Any, x_BTD: Tensor, bias_N: Tensor | None, *weights: Tensor) -> tuple[Tensor, ...]:
        needed = (x_BTD,) if any(ctx.needs_input_grad[2:]) else ()
        ctx.save_for_backward(*weights, *needed)
        y_BTN = F.linear(x_BTD, torch.cat(weights), bias_N)
        return torch.split(y_BTN, [len(weight) for weight in weights], dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        parts = len(gradients)
        weights, needed = ctx.saved_tensors[:parts], ctx.saved_tensors[parts:]
        grad_BTN, grad_x_BTD = _joined_gradients(gradients, weights)
        grad_MN = grad_BTN.flatten(0, -2)
        bias_N = grad_MN.sum(0) if ctx.needs_input_grad[1] else None
        if not needed:
            return (grad_x_BTD, bias_N, *[None] * parts)
        weight_ND = grad_MN.t() @ needed[0].flatten(0, -2)
        return (grad_x_BTD, bias_N, *torch.split(weight_ND, [len(weight) for weight in weights]))


@torch.library.custom_op("gpubloom::joined_gradients", mutates_args=())
def _joined_gradients(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The gradients side by side, and that of the common input."""
    grad_BTN = torch.cat(list(gradients), dim=-1)
    return grad_BTN, grad_BTN @ torch.cat(list(weights))


@_joined_gradients.register_fake
def _(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    rows = gradients[0].shape[:-1]
    grad_BTN = gradients[0].new_empty(*rows, sum(each.shape[-1] for each in gradients))
    return grad_BTN, gradients[0].new_empty(*rows, weights[0].shape[1])


def _is_worth_it(x_BTD: Tensor, linears: Sequence[Any]) -> bool:
    """Whether the joined weights have fewer rows than the input would be read again."""
    read_again = (len(linears) - 1) * x_BTD.shape[:-1].numel()
    return (
        all(type(linear) is nn.Linear for linear in linears)
        and len({linear.bias is None for linear in linears}) == 1
        and sum(linear.out_features for linear in linears) < read_again
    )
