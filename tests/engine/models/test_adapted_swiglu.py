"""Layers whose adapters share passes over memory compute what their parts compute one after the other.

Torch stands for the kernels here, and a CPU is taken for a GPU; `test_training_kernels.py` runs the kernels.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gpubloom.engine.models import adapted_swiglu, projections
from gpubloom.engine.models.fp8 import use_fp8
from gpubloom.engine.models.lora import LoraBlocks, LoraSettings, has_dropout, with_lora
from gpubloom.engine.models.transformer import LlamaBlocks, Variant
from gpubloom.plan import ModelShape
from tests.engine.kernels_in_torch import swiglu, swiglu_gradients

SHAPE = ModelShape(
    vocab_size=97, hidden_size=32, layers=1, heads=4, kv_heads=2, ffn_size=48, context_length=64
)
ALL = LoraSettings(rank=4, alpha=6)
PLAIN = Variant()
CALLS: list[str] = []


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    for module in (projections, adapted_swiglu):
        monkeypatch.setattr(module, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(adapted_swiglu, "_PRECISIONS", (torch.float32, torch.bfloat16))
    monkeypatch.setattr(adapted_swiglu, "_HAS_TRITON", True)

    def forward(*given: Tensor) -> Tensor:
        CALLS.append("forward")
        return swiglu(*given)

    def backward(*given: Tensor) -> tuple[Tensor, ...]:
        CALLS.append("backward")
        return swiglu_gradients(*given)

    adapted_swiglu._swiglu.register_kernel("cpu", forward)
    adapted_swiglu._swiglu_backward.register_kernel("cpu", backward)


class Layer:
    """One decoder layer with adapters that matter, as a function of its tensors."""

    def __init__(self, settings: LoraSettings | None, variant: Variant = PLAIN) -> None:
        base = LlamaBlocks(SHAPE, variant)
        self.model = base if settings is None else with_lora(base, settings)
        self.block = self.model.blocks[1]
        specs = (*self.block.trained, *self.block.frozen)
        self.names = [spec.name for spec in specs]
        generator = torch.Generator().manual_seed(1)
        self.tensors = [0.3 * torch.randn(spec.shape, generator=generator) for spec in specs]
        self.tables = list(self.model.tables(torch.zeros(2, 8, dtype=torch.int64), None))
        if isinstance(self.model, LoraBlocks) and self.model.dropout is not None:
            self.tables.append(self.model.dropout.draws(0, 1, [0], training=True)[0, 0])
        self.x_BTD, self.grad_BTD = torch.randn(2, 2, 8, SHAPE.hidden_size, generator=generator)

    def __call__(self, tensors: Any, x_BTD: Tensor) -> Tensor:
        weights = dict(zip(self.names, tensors, strict=True))
        return self.model.layer(self.block.kind, weights, x_BTD, tuple(self.tables))

    def gradients(self, run: Callable[..., Tensor] | None = None) -> list[Tensor]:
        """The output, and the gradients of the input and of everything trained."""
        trained = len(self.block.trained)
        inputs = [
            tensor.detach().clone().requires_grad_() for tensor in (self.x_BTD, *self.tensors[:trained])
        ]
        y_BTD = (run or self)([*inputs[1:], *self.tensors[trained:]], inputs[0])
        return [y_BTD.detach(), *torch.autograd.grad(y_BTD, inputs, self.grad_BTD)]


def agree(found: list[Tensor], wanted: list[Tensor]) -> None:
    for each, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-4)


LAYERS = {
    "adapters everywhere": (ALL, PLAIN),
    "with biases": (ALL, Variant(qkv_bias=True, out_bias=True, ffn_bias=True)),
    "with norms of heads": (ALL, Variant(head_norms=True)),
    "without adapters": (None, Variant(qkv_bias=True)),
    "adapters in attention": (LoraSettings(4, 6, ("q_proj", "v_proj")), PLAIN),
    "no adapter at down": (LoraSettings(4, 6, ("k_proj", "gate_proj", "up_proj")), PLAIN),
    "with dropout": (LoraSettings(4, 6, dropout=0.2), PLAIN),
}
FUSED = {"adapters everywhere", "with biases", "with norms of heads"}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_its_parts_compute(name: str, request: pytest.FixtureRequest) -> None:
    layer = Layer(*LAYERS[name])
    wanted = layer.gradients()
    request.getfixturevalue("as_on_a_gpu")
    agree(layer.gradients(), wanted)
    assert (name in FUSED) == (CALLS == ["forward", "backward"])
    assert name in FUSED or not CALLS


# torch's compiler makes one for itself.
@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", ["adapters everywhere", "without adapters", "with dropout"])
def test_a_layer_can_be_compiled_and_traced_with_its_backward_pass(
    name: str, request: pytest.FixtureRequest
) -> None:
    layer = Layer(*LAYERS[name])
    wanted = layer.gradients()
    request.getfixturevalue("as_on_a_gpu")
    compiled = torch.compile(layer.__call__, fullgraph=True, dynamic=False, backend="aot_eager")
    agree(layer.gradients(compiled), wanted)
    trained = layer.tensors[: len(layer.block.trained)]

    def backward(x_BTD: Tensor, trained: list[Tensor], grad_BTD: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_() for tensor in (x_BTD, *trained)]
            y_BTD = layer([*inputs[1:], *layer.tensors[len(trained) :]], inputs[0])
        return torch.autograd.grad(y_BTD, inputs, grad_BTD)

    with torch.no_grad():
        graph = make_fx(backward, tracing_mode="fake", _allow_non_fake_inputs=True)(
            layer.x_BTD, trained, layer.grad_BTD
        )
    agree(list(graph(layer.x_BTD, trained, layer.grad_BTD)), wanted[1:])


def products(layer: Layer) -> int:
    """Matrix products of a forward and a backward pass."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        layer.gradients()
    return sum(event.count for event in recorded.key_averages() if event.key in ("aten::mm", "aten::addmm"))


def test_layers_with_one_input_are_one_product_where_that_moves_less_memory(
    monkeypatch: pytest.MonkeyPatch, as_on_a_gpu: None
) -> None:
    layer = Layer(None)
    # 16 positions are read twice more by three layers of 64 outputs in all: too few, until there are more.
    apart = products(layer)
    layer.x_BTD, layer.grad_BTD = (each.repeat(3, 1, 1) for each in (layer.x_BTD, layer.grad_BTD))
    assert products(layer) == apart - 3 * 2


@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("settings", [None, ALL], ids=["full", "adapters"])
def test_joined_weights_are_not_kept_for_the_backward_pass(
    compiled: bool, settings: LoraSettings | None, monkeypatch: pytest.MonkeyPatch, as_on_a_gpu: None
) -> None:
    layer = Layer(settings)
    layer.x_BTD, layer.grad_BTD = (each.repeat(3, 1, 1) for each in (layer.x_BTD, layer.grad_BTD))
    run: Callable[..., Tensor] = layer.__call__
    if compiled:
        run = torch.compile(run, fullgraph=True, dynamic=False, backend="aot_eager_decomp_partition")
    kept: list[tuple[int, ...]] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer.gradients(run)
    joined = sum(SHAPE.hidden_size // SHAPE.heads * heads for heads in (4, 2, 2))
    assert (joined, SHAPE.hidden_size) not in kept
    assert (SHAPE.hidden_size, joined) not in kept
    assert (SHAPE.hidden_size, SHAPE.hidden_size) in kept or compiled


def test_matrices_in_other_precisions_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("gpubloom.engine.models.fp8._NARROWEST", 16)
    layer = Layer(ALL)
    use_fp8(layer.model)
    wanted = layer.gradients()
    request.getfixturevalue("as_on_a_gpu")
    agree(layer.gradients(), wanted)
    assert CALLS == ["forward", "backward"]


def test_high_ranks_are_computed_one_after_the_other(as_on_a_gpu: None) -> None:
    Layer(LoraSettings(rank=65, alpha=65)).gradients()
    assert CALLS == []


def test_an_adapter_with_dropout_is_known_as_such() -> None:
    for settings, expected in ((ALL, False), (LoraSettings(4, 6, dropout=0.1), True)):
        model = Layer(settings).model
        assert has_dropout(model.templates["layer"].get_submodule("mlp.up_proj")) == expected
