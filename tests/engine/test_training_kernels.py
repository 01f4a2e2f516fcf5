"""The Triton kernels of training compute what torch does: on a GPU, or by the interpreter of Triton."""

import importlib

import pytest
import torch
from torch import Tensor

from gpubloom.engine.data.rows import IGNORED
from tests.engine import kernels_in_torch

# Tensor cores cut the operands of a product in FP32 to ten bits, here of two products one after the other.
ROUNDING = 5e-3
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
with pytest.MonkeyPatch.context() as _patch:
    if DEVICE.type == "cpu":
        # Read when Triton and the kernels are imported, and again when a kernel is called.
        _patch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    swiglu = importlib.import_module("gpubloom.engine.models.adapted_swiglu_kernels")
    loss = importlib.import_module("gpubloom.engine.loss_kernel")


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize(
    ("positions", "features", "ranks"),
    [(64, 128, (16, 16, 16)), (70, 200, (4, 4, 4)), (3, 48, (1, 33, 20)), (130, 72, (16, 8, 64))],
)
def test_swiglu_with_adapters(positions: int, features: int, ranks: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(positions)

    def random(*shape: int) -> Tensor:
        return (0.5 * torch.randn(*shape, generator=generator)).to(DEVICE)

    gate, up, grad = (random(positions, features) for _ in range(3))
    low_gate, low_up, low_down = (random(positions, rank) for rank in ranks)
    b_gate, b_up = (random(features, rank) for rank in ranks[:2])
    given = (gate, up, low_gate, low_up, b_gate, b_up)
    assert distance(swiglu.forward(*given), kernels_in_torch.swiglu(*given)) < ROUNDING
    given = (grad, low_down, random(ranks[2], features), *given)
    wanted = kernels_in_torch.swiglu_gradients(*given)
    for each, expected in zip(swiglu.backward(*given), wanted, strict=True):
        assert distance(each, expected) < ROUNDING


@pytest.mark.parametrize("vocabulary", [5, 8_192, 20_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_and_its_gradient(vocabulary: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits_NV = (10 * torch.randn(6, vocabulary, generator=generator)).to(DEVICE, dtype)
    # As large as fp16 can be, and so small that its exponential is zero.
    logits_NV[0, 1], logits_NV[1, 2] = 6e4, -6e4
    targets_N = torch.tensor([0, 2, IGNORED, 4, 1, vocabulary - 1], device=DEVICE)
    scale = torch.tensor(0.5, device=DEVICE)
    wanted_N, wanted_NV = kernels_in_torch.loss_and_gradient(logits_NV, targets_N, scale)
    loss_N, grad_NV = loss.cross_entropy(logits_NV, targets_N, scale)
    torch.testing.assert_close(loss_N, wanted_N, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad_NV, wanted_NV, rtol=1e-2, atol=1e-6)
