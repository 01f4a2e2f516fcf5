"""`precision: fp8`: the matrix products of linear layers in 8-bit floating point, everything else in bf16.

Both operands are scaled by their largest value at that moment (one scale per tensor, dynamic), so that a
resumed run needs no history. Weights and activations are E4M3 (3 bits of fraction), gradients are E5M2 (a
wider range); sums are FP32. Norms, attention, the head, adapters and narrow layers such as a router stay in
bf16, and master weights in FP32.

Shape letters: M positions of any rows, K inputs, N outputs.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.models.blocks import BlockModel
from gpubloom.engine.models.lora import TemplatedModel
from gpubloom.errors import InputError

_VALUES, _GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
# The tensor cores of an FP8 product take operands in pieces of 16.
_PIECE = 16
# A narrow layer gains nothing, and the router of a mixture of experts needs its precision.
_NARROWEST = 256
_ADAPTERS = ("lora_A", "lora_B")


def use_fp8(model: BlockModel) -> None:
    """From here on the model's layers multiply in FP8 where that is possible."""
    if not hasattr(model, "templates"):
        raise InputError(
            "precision_not_supported",
            "This kind of model does not support precision fp8: use precision bf16.",
        )
    for template in cast(TemplatedModel, model).templates.values():
        for path, module in template.named_modules():
            if type(module) is nn.Linear and _is_worth_it(path, module):
                module.__class__ = Fp8Linear


def _is_worth_it(path: str, module: nn.Linear) -> bool:
    sizes = (module.in_features, module.out_features)
    return (
        path.rpartition(".")[2] not in _ADAPTERS
        and min(sizes) >= _NARROWEST
        and not any(size % _PIECE for size in sizes)
    )


class Fp8Linear(nn.Linear):
    """A linear layer that is given weights in bf16."""

    def forward(self, x: Tensor) -> Tensor:
        x_MK = x.reshape(-1, self.in_features)
        if x_MK.shape[0] % _PIECE:
            return F.linear(x, self.weight, self.bias)
        y_MN = cast(Tensor, _Product.apply(x_MK, self.weight))  # type: ignore[no-untyped-call]
        y = y_MN.view(*x.shape[:-1], self.out_features)
        bias = cast(Tensor | None, self.bias)
        return y if bias is None else y + bias


class _Product(torch.autograd.Function):
    """x · Wᵀ."""

    @staticmethod
    def forward(ctx: Any, x_MK: Tensor, weight_NK: Tensor) -> Tensor:
        x8_MK, x_scale = _scaled(x_MK, _VALUES)
        weight8_NK, weight_scale = _scaled(weight_NK, _VALUES)
        needed = (x8_MK, x_scale) if ctx.needs_input_grad[1] else ()
        ctx.save_for_backward(weight_NK, *needed)
        return _multiply(x8_MK, weight8_NK, x_scale, weight_scale, x_MK.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, grad_MN: Tensor) -> tuple[Tensor | None, Tensor | None]:
        weight_NK, *x8 = ctx.saved_tensors
        grad8_MN, grad_scale = _scaled(grad_MN, _GRADIENTS)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            # Rounded again, and not before there is a gradient: the compiler would otherwise keep a second
            # copy of every weight from the forward pass.
            weight8_NK, weight_scale = _scaled(weight_NK, _VALUES, not_before=grad_MN)
            grad_x = _multiply(grad8_MN, weight8_NK.t().contiguous(), grad_scale, weight_scale, grad_MN.dtype)
        if ctx.needs_input_grad[1]:
            x8_MK, x_scale = x8
            grad_weight = _multiply(
                grad8_MN.t().contiguous(), x8_MK.t().contiguous(), grad_scale, x_scale, weight_NK.dtype
            )
        return grad_x, grad_weight


def _scaled(values: Tensor, dtype: torch.dtype, not_before: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Values in 8 bits, the largest at the end of the range, and what to multiply them with."""
    largest = torch.finfo(dtype).max
    scale = values.abs().amax().float().clamp(min=1e-12) / largest
    if not_before is not None:
        # Adds nothing; where the gradient is not finite, neither is the result.
        scale = scale + 0.0 * not_before[0, 0].float()
    return (values.float() / scale).clamp(-largest, largest).to(dtype), scale


def _multiply(
    rows_RK: Tensor,
    columns_CK: Tensor,
    rows_scale: Tensor,
    columns_scale: Tensor,
    dtype: torch.dtype,
    *,
    fast: bool = False,
) -> Tensor:
    """rows · columnsᵀ, both with K last, as the hardware wants it. `fast` sums in somewhat less than FP32."""
    return torch._scaled_mm(
        rows_RK, columns_CK.t(), rows_scale, columns_scale, out_dtype=dtype, use_fast_accum=fast
    )
