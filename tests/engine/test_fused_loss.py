"""The head gets the same loss and gradients from the operator that computes both at once."""

import pytest
import torch
from torch import Tensor

from gpubloom.engine import loss
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.executors.blocks import functions
from gpubloom.engine.executors.blocks.functions import Bound, HeadFunctions
from gpubloom.engine.models.transformer import LlamaBlocks
from gpubloom.plan import ModelShape
from tests.engine.kernels_in_torch import loss_and_gradient


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_head_learns_the_same_by_either_way(
    tied: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = ModelShape(
        vocab_size=97, hidden_size=32, layers=1, heads=4, kv_heads=2, ffn_size=48, context_length=64,
        tie_embeddings=tied,
    )  # fmt: skip
    model = LlamaBlocks(shape)
    block = model.blocks[0 if tied else -1]
    generator = torch.Generator().manual_seed(0)
    trained = [torch.randn(spec.shape, generator=generator) for spec in block.trained]
    bound = Bound([spec.name for spec in block.trained], trained, ())
    x_ND, scale = torch.randn(9, 32, generator=generator), torch.tensor(0.25)
    targets_N = torch.tensor([3, IGNORED, 5, 96, 0, IGNORED, 7, 7, 1])
    # Traced as for the compiler, which is not needed here.
    monkeypatch.setattr(functions, "compile_program", lambda program: program)

    def found() -> tuple[Tensor, ...]:
        return tuple(HeadFunctions(model, bound.names, compiled=compiled).loss(bound, x_ND, targets_N, scale))

    wanted = found()
    calls: list[int] = []

    def kernel(logits_NV: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(len(logits_NV))
        return loss_and_gradient(logits_NV, targets_N, scale)

    loss._cross_entropy.register_kernel("cpu", kernel)
    monkeypatch.setattr(functions, "has_fused_gradient", lambda logits_NV: True)
    for each, expected in zip(found(), wanted, strict=True):
        torch.testing.assert_close(each, expected)
    assert calls == [9]
