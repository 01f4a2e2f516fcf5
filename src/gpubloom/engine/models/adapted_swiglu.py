"""SwiGLU with adapters on gate, up and down: what is as wide as the feed-forward passes memory once each way.

y = down(silu(gate(x)) * up(x)), where each of the three adds scale · B(A(input)). Computed one after the
other, the terms of the adapters are tensors as wide as gate and up, which are written and read again only to
be added. Here a kernel makes them from their narrow factors where it adds them (`adapted_swiglu_kernels.py`).
The matrices themselves may compute in any precision.

Shape letters: M positions of any rows, F feed-forward size, R rank. Narrow factors are scaled already.
"""

import importlib.util
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpubloom.engine.models.lora import has_adapter, has_dropout, lora_up
from gpubloom.engine.models.projections import is_on_gpu, lora_down_together, without_adapter
from gpubloom.plan.costs import HIGHEST_FUSED_RANK

# GPUs that compute in it run the kernels; older ones, which use fp16, may not.
_PRECISIONS = (torch.bfloat16,)
# Known when this file is imported: compiled code cannot look for it.
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def fuses_adapters(x_BTD: Tensor, gate: nn.Linear, up: nn.Linear, down: nn.Linear) -> bool:
    """Whether these layers can be computed here."""
    linears = (gate, up, down)
    return (
        _HAS_TRITON
        and is_on_gpu(x_BTD)
        and x_BTD.dtype in _PRECISIONS
        and all(has_adapter(linear) and not has_dropout(linear) for linear in linears)
        and all(len(cast(Any, linear).lora_A.weight) <= HIGHEST_FUSED_RANK for linear in linears)
    )


def adapted_swiglu(x_BTD: Tensor, gate: nn.Linear, up: nn.Linear, down: nn.Linear) -> Tensor:
    """down(silu(gate(x)) * up(x)), adapters included."""
    low_gate, low_up = (
        cast(Any, linear).lora_scale * low
        for linear, low in zip((gate, up), lora_down_together(x_BTD, (gate, up)), strict=True)
    )
    h_BTF, low_down = _AdaptedSwiGLU.apply(  # type: ignore[no-untyped-call]
        without_adapter(gate, x_BTD),
        without_adapter(up, x_BTD),
        low_gate,
        low_up,
        cast(Any, gate).lora_B.weight,
        cast(Any, up).lora_B.weight,
        cast(Any, down).lora_A.weight,
    )
    return without_adapter(down, h_BTF) + lora_up(down, low_down)


class _AdaptedSwiGLU(torch.autograd.Function):
    """h = silu(gate + low_gate · B_gateᵀ) * (up + low_up · B_upᵀ), and h · A_downᵀ.

    The gradient of h arrives in two parts: from the matrix of down, and as that of h · A_downᵀ.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gate: Tensor,
        up: Tensor,
        low_gate: Tensor,
        low_up: Tensor,
        b_gate_FR: Tensor,
        b_up_FR: Tensor,
        a_down_RF: Tensor,
    ) -> tuple[Tensor, Tensor]:
        given = tuple(each.flatten(0, -2) for each in (gate, up, low_gate, low_up))
        h_MF = _swiglu(*given, b_gate_FR, b_up_FR)
        ctx.save_for_backward(*given, b_gate_FR, b_up_FR, a_down_RF)
        h = h_MF.view(gate.shape)
        return h, F.linear(h, a_down_RF)

    @staticmethod
    def backward(ctx: Any, grad_h: Tensor, grad_low_down: Tensor) -> tuple[Tensor, ...]:
        gate_MF, up_MF, low_gate_MR, low_up_MR, b_gate_FR, b_up_FR, a_down_RF = ctx.saved_tensors
        d_gate_MF, d_up_MF, d_b_gate_FR, d_b_up_FR, d_a_down_RF = _swiglu_backward(
            grad_h.flatten(0, -2),
            grad_low_down.flatten(0, -2),
            a_down_RF,
            gate_MF,
            up_MF,
            low_gate_MR,
            low_up_MR,
            b_gate_FR,
            b_up_FR,
        )
        rows = grad_h.shape[:-1]
        return (
            d_gate_MF.view(grad_h.shape),
            d_up_MF.view(grad_h.shape),
            (d_gate_MF @ b_gate_FR).view(*rows, -1),
            (d_up_MF @ b_up_FR).view(*rows, -1),
            d_b_gate_FR,
            d_b_up_FR,
            d_a_down_RF,
        )


# Operators, which the compiler takes as they are. Triton is loaded when one of them runs.


@torch.library.custom_op("gpubloom::adapted_swiglu", mutates_args=(), device_types="cuda")
def _swiglu(
    gate_MF: Tensor, up_MF: Tensor, low_gate_MR: Tensor, low_up_MR: Tensor, b_gate_FR: Tensor, b_up_FR: Tensor
) -> Tensor:
    from gpubloom.engine.models.adapted_swiglu_kernels import forward

    return forward(gate_MF, up_MF, low_gate_MR, low_up_MR, b_gate_FR, b_up_FR)


@_swiglu.register_fake
def _(gate_MF: Tensor, *_others: Tensor) -> Tensor:
    return gate_MF.new_empty(gate_MF.shape)


@torch.library.custom_op("gpubloom::adapted_swiglu_backward", mutates_args=(), device_types="cuda")
def _swiglu_backward(
    grad_MF: Tensor,
    low_down_MR: Tensor,
    a_down_RF: Tensor,
    gate_MF: Tensor,
    up_MF: Tensor,
    low_gate_MR: Tensor,
    low_up_MR: Tensor,
    b_gate_FR: Tensor,
    b_up_FR: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from gpubloom.engine.models.adapted_swiglu_kernels import backward

    return backward(
        grad_MF, low_down_MR, a_down_RF, gate_MF, up_MF, low_gate_MR, low_up_MR, b_gate_FR, b_up_FR
    )


@_swiglu_backward.register_fake
def _(
    grad_MF: Tensor,
    low_down_MR: Tensor,
    a_down_RF: Tensor,
    gate_MF: Tensor,
    up_MF: Tensor,
    low_gate_MR: Tensor,
    low_up_MR: Tensor,
    b_gate_FR: Tensor,
    b_up_FR: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    d_gate_MF, d_up_MF, d_b_gate_FR, d_b_up_FR, d_a_down_RF = (
        each.new_empty(each.shape) for each in (gate_MF, up_MF, b_gate_FR, b_up_FR, a_down_RF)
    )
    return d_gate_MF, d_up_MF, d_b_gate_FR, d_b_up_FR, d_a_down_RF
