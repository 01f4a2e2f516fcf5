"""Conversions of the host AdamW, pattern by pattern, against torch's."""

import pytest
import torch
from torch import Tensor

from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW

# What follows the upper half of an FP32 number: ties and both sides of them, for bf16 and for fp16.
LOWER = (0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
KEEPS_WEIGHTS = AdamWStep(lr=0.0, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, updates=1)
TAKES_GRADIENT = AdamWStep(lr=0.0, beta1=0.0, beta2=0.0, eps=1e-8, weight_decay=0.0, updates=1)


def every_half(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)


def edges() -> Tensor:
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    return torch.cat([upper | lower for lower in LOWER]).view(torch.float32)


def assert_same_numbers(found: Tensor, wanted: Tensor) -> None:
    assert torch.equal(found.isnan(), wanted.isnan())
    numbers = ~wanted.isnan()
    assert torch.equal(found[numbers].view(torch.int16), wanted[numbers].view(torch.int16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [0, 1])
def test_copies_are_rounded_as_torch_rounds_for_every_pattern(dtype: torch.dtype, shift: int) -> None:
    master = edges()[shift:]
    wanted = master.to(dtype)
    copy = torch.zeros(len(master) + shift, dtype=dtype)[shift:]
    zeros = [torch.zeros(len(master)) for _ in range(3)]
    HostAdamW(2).update(master, *zeros, copy, KEEPS_WEIGHTS, 1.0)
    assert_same_numbers(copy, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_gradient_is_read_as_torch_reads_it(dtype: torch.dtype) -> None:
    gradient = every_half(dtype)
    master, first, second = (torch.zeros(len(gradient)) for _ in range(3))
    HostAdamW(1).update(master, first, second, gradient, None, TAKES_GRADIENT, 1.0)
    assert torch.equal(first.nan_to_num(nan=7.0), gradient.float().nan_to_num(nan=7.0))
    assert torch.equal(first.isnan(), gradient.isnan())
