"""Every family, block by block, computes what transformers computes with the whole model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gpubloom.engine.models.blocks import BlockModel
from gpubloom.engine.models.hugging_face import HuggingFaceBlocks
from tests.engine.models.families import (
    FAMILIES,
    LENGTH,
    MIXTURES,
    Chained,
    config_of,
    loss_of,
    model_of,
    reference_of,
    some_tokens,
)

every_family = pytest.mark.parametrize("name", FAMILIES)


@every_family
def test_chained_blocks_give_the_logits_and_gradients_of_the_whole_model(name: str) -> None:
    reference = reference_of(name)
    tokens_BT = some_tokens()
    expected = reference(tokens_BT).logits
    names, parameters = zip(*reference.named_parameters(), strict=True)
    expected_gradients = torch.autograd.grad(loss_of(expected, tokens_BT), parameters)
    found = Chained.of(name, reference).logits(tokens_BT)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    gradients = torch.autograd.grad(loss_of(found, tokens_BT), parameters)
    for tensor, gradient, wanted in zip(names, gradients, expected_gradients, strict=True):
        assert (gradient - wanted).abs().max() <= 1e-5 * max(1.0, float(wanted.abs().max())), tensor


@every_family
def test_every_document_of_a_row_is_computed_as_if_it_were_alone(name: str) -> None:
    reference = reference_of(name)
    tokens_BT = some_tokens()
    documents_BT = torch.tensor([[7] * 5 + [8] * 7, [0] * 3 + [1] * 8 + [0]])
    with torch.no_grad():
        found = Chained.of(name, reference).logits(tokens_BT, documents_BT)
        for row, lengths in ((0, (5, 7)), (1, (3, 8, 1))):
            start = 0
            for length in lengths:
                document = slice(start, start + length)
                alone = reference(tokens_BT[row : row + 1, document]).logits[0]
                torch.testing.assert_close(found[row, document], alone, rtol=1e-5, atol=1e-5)
                start += length


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in MIXTURES])
def test_a_layer_with_its_backward_pass_can_be_traced_into_one_graph(name: str) -> None:
    reference = reference_of(name)
    chained = Chained.of(name, reference)
    kinds = {block.kind: index for index, block in enumerate(chained.model.blocks)}
    for kind, index in kinds.items():
        if kind in ("embedding", "head"):
            continue
        backward = _backward_of(chained.model, kind, list(chained.weights(index)))
        generator = torch.Generator().manual_seed(2)
        x_BTD, grad_BTD = (torch.randn(2, LENGTH, 32, generator=generator) for _ in range(2))
        packed_BT = torch.tensor([[0] * 5 + [1] * 7] * 2)
        for documents_BT in (None, packed_BT) if name in ("llama", "gemma3", "falcon") else (None,):
            tables = chained.model.tables(some_tokens(), documents_BT)
            arguments = (list(chained.weights(index).values()), x_BTD, tables, grad_BTD)
            with torch.no_grad():
                graph = make_fx(backward, tracing_mode="fake")(*arguments)
                traced = graph(*arguments)
            for found, expected in zip(traced, backward(*arguments), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_layers_of_experts_are_known_to_stay_eager() -> None:
    for name in FAMILIES:
        model = model_of(name)
        assert model.eager_kinds == (set(model.templates) if name in MIXTURES else set()), name


def _backward_of(model: BlockModel, kind: str, names: list[str]) -> Callable[..., tuple[Tensor, ...]]:
    def backward(weights: Any, x_BTD: Tensor, tables: Any, grad_BTD: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            x_BTD = x_BTD.detach().requires_grad_()
            weights = [weight.detach().requires_grad_() for weight in weights]
            y_BTD = model.layer(kind, dict(zip(names, weights, strict=True)), x_BTD, tables)
        return torch.autograd.grad(y_BTD, [x_BTD, *weights], grad_BTD)

    return backward


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "falcon", "gpt2"])
def test_a_layer_compiles_without_leaving_the_graph(name: str) -> None:
    chained = Chained.of(name, reference_of(name))
    tables = chained.model.tables(some_tokens(), None)
    kind = chained.model.blocks[1].kind
    x_BTD = torch.randn(2, LENGTH, 32, generator=torch.Generator().manual_seed(2))
    # The tracer is what may give up; code generation would only take time.
    compiled = torch.compile(chained.model.layer, fullgraph=True, dynamic=False, backend="aot_eager")
    with torch.no_grad():
        found = compiled(kind, chained.weights(1), x_BTD, tables)
        expected = chained.model.layer(kind, chained.weights(1), x_BTD, tables)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_layers_are_of_different_kinds_only_where_they_compute_differently() -> None:
    def kinds(name: str) -> list[str]:
        model = model_of(name)
        return [block.kind for block in model.blocks if block.kind not in ("embedding", "head")]

    assert kinds("llama") == ["layer"] * 3
    assert kinds("gemma2") == ["layer", "layer-2", "layer"]
    assert kinds("gemma3") == ["layer"] * 5 + ["layer-2", "layer"]
    assert kinds("smollm3") == ["layer"] * 3 + ["layer-2", "layer"]
    assert kinds("gpt2-scaled") == ["layer", "layer-2", "layer-3"]


def test_rows_within_the_window_and_without_documents_need_no_mask() -> None:
    model = model_of("mistral")

    def masks(length: int) -> list[Tensor]:
        return [table for table in model.tables(some_tokens(2, length), None) if table.dtype == torch.bool]

    assert [mask.numel() for mask in masks(5)] == [0]
    assert [mask.numel() for mask in masks(6)] == [36]


def test_blocks_have_the_tensors_of_a_checkpoint_and_each_once() -> None:
    for name in FAMILIES:
        model: BlockModel = model_of(name)
        found = {
            model.parameter_name(block, spec): spec.shape for block in model.blocks for spec in block.trained
        }
        expected = {name: tuple(value.shape) for name, value in reference_of(name).named_parameters()}
        assert found == expected, name
        assert sum(len(block.trained) for block in model.blocks) == len(found)


def test_dropout_of_the_config_is_off_and_said_to_be() -> None:
    assert model_of("llama").notes == ()
    notes = HuggingFaceBlocks(config_of("phi", resid_pdrop=0.25)).notes
    assert notes == ("The model config sets resid_pdrop to 0.25, but training runs without this dropout.",)


def test_computes_in_the_precision_of_the_weights() -> None:
    for name in ("llama", "gemma3", "gpt2", "falcon"):
        reference = reference_of(name, torch.bfloat16)
        with torch.no_grad():
            found = Chained.of(name, reference).logits(some_tokens())
            assert found.dtype == torch.bfloat16
            torch.testing.assert_close(found, reference(some_tokens()).logits, rtol=2e-2, atol=2e-2)
