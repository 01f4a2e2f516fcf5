"""The Triton kernels of training compute what torch does: on a GPU, or by the interpreter of Triton."""

import importlib

import pytest
import torch
from torch import Tensor

from gpubloom.engine.data.rows import IGNORED
from tests.engine import kernels_in_torch

# Tensor cores cut the operands of a product in FP32 to ten bits, here of two products one after the other.
# The interpreter has no products in bf16.
ROUNDING = {torch.float32: 5e-3} | ({torch.bfloat16: 1e-2} if torch.cuda.is_available() else {})
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
    [
        (64, 128, (16, 16, 16)),
        (70, 200, (4, 4, 4)),
        (3, 48, (1, 33, 20)),
        (130, 72, (16, 8, 64)),
        (96, 128, (32, 32, 32)),
        (40, 136, (64, 64, 64)),
    ],
)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_swiglu_with_adapters(
    positions: int, features: int, ranks: tuple[int, int, int], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(positions)

    def random(*shape: int) -> Tensor:
        wider = 0.5 * torch.randn(*shape[:-1], shape[-1] + 8, generator=generator)
        # A part of something wider, as a split leaves it.
        return wider.to(DEVICE, dtype)[..., : shape[-1]]

    def wide(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor.float() for tensor in tensors)

    gate, up, grad = (random(positions, features) for _ in range(3))
    low_gate, low_up, low_down = (random(positions, rank) for rank in ranks)
    b_gate, b_up = (random(features, rank) for rank in ranks[:2])
    given = (gate, up, low_gate, low_up, b_gate, b_up)
    assert distance(swiglu.forward(*given), kernels_in_torch.swiglu(*wide(given))) < ROUNDING[dtype]
    given = (grad, low_down, random(ranks[2], features), *given)
    wanted = kernels_in_torch.swiglu_gradients(*wide(given))
    for each, expected in zip(swiglu.backward(*given), wanted, strict=True):
        assert each.dtype == dtype
        assert distance(each, expected) < ROUNDING[dtype]


@pytest.mark.parametrize("rank", [16, 32, 64])
def test_less_shared_memory_changes_no_gradient(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)

    gate, up, grad = (random(40 + number, 64)[:40] for number in range(3))
    low, wide = random(40, rank), random(64, rank)
    given = (grad, low, wide.t().contiguous(), gate, up, low, low, wide, wide)
    usual = swiglu.backward(*given)
    monkeypatch.setattr(swiglu, "_shared_memory", lambda device: 101_376)
    for each, expected in zip(swiglu.backward(*given), usual, strict=True):
        assert distance(each, expected) < 1e-6


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


def test_tokens_that_a_model_rules_out_are_no_reason_for_a_loss_that_is_not_finite() -> None:
    logits_NV = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    logits_NV[0, :9_000] = float("-inf")
    targets_N, scale = torch.tensor([15_000], device=DEVICE), torch.tensor(1.0, device=DEVICE)
    wanted_N, wanted_NV = kernels_in_torch.loss_and_gradient(logits_NV, targets_N, scale)
    loss_N, grad_NV = loss.cross_entropy(logits_NV, targets_N, scale)
    torch.testing.assert_close(loss_N, wanted_N)
    torch.testing.assert_close(grad_NV, wanted_NV, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("target", [-1, 50, 1 << 40])
def test_a_token_that_the_model_lacks_makes_the_loss_not_finite(target: int) -> None:
    targets_N, scale = torch.tensor([target], device=DEVICE), torch.tensor(1.0, device=DEVICE)
    loss_N, _ = loss.cross_entropy(torch.zeros(1, 50, device=DEVICE), targets_N, scale)
    assert loss_N.isnan().all()
