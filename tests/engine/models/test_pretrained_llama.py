"""Llama, Mistral, Qwen2 and Qwen3 without transformers compute what transformers computes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.checkpoint.restoring import _differences
from gpubloom.engine.models.hugging_face import HuggingFaceBlocks
from gpubloom.engine.models.lora import LoraSettings, LoraWeights, with_lora
from gpubloom.engine.models.pretrained_llama import PretrainedLlama, open_llama
from gpubloom.engine.models.weight_sources import RandomWeights
from tests.engine.models.families import Chained, config_of, loss_of, reference_of, some_tokens
from tests.tiny_models import make_tiny_model

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
# Names of FAMILIES, with settings besides theirs.
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama-tied", {}),
    "llama-padded": ("llama-padded", {}),
    "llama3": ("llama", {"rope_parameters": _LLAMA3, "head_dim": 16}),
    "llama-linear": ("llama", {"rope_parameters": _LINEAR}),
    "qwen2": ("qwen2", {"rms_norm_eps": 1e-3}),
    "qwen2-window-off": ("qwen2", {"sliding_window": 3, "use_sliding_window": False}),
    "qwen3": ("qwen3", {}),
    "qwen3-biased": ("qwen3", {"attention_bias": True, "tie_word_embeddings": False}),
    "mistral": ("mistral-full", {"head_dim": 16}),
}
NOT_OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "window": ("mistral", {}),
    "mixed windows": ("qwen2-mixed", {}),
    "another family": ("gemma", {}),
    "experts": ("qwen3_moe", {}),
    "yarn": ("llama", {"rope_parameters": {**_LINEAR, "rope_type": "yarn"}}),
    "another activation": ("llama", {"hidden_act": "gelu"}),
    "quantized": ("llama", {"quantization_config": {"quant_method": "gptq"}}),
    "half rotated": ("llama", {"rope_parameters": {**_LINEAR, "partial_rotary_factor": 0.5}}),
}
ours = pytest.mark.parametrize("name", OURS)


def _settings(cases: dict[str, tuple[str, dict[str, Any]]], name: str) -> dict[str, Any]:
    family, changes = cases[name]
    settings: dict[str, Any] = config_of(family, **changes).to_dict()
    return settings


def _opened(name: str) -> tuple[PretrainedLlama, Any]:
    """The model, and transformers' with weights."""
    model = open_llama(_settings(OURS, name))
    assert model is not None
    family, changes = OURS[name]
    return model, reference_of(family, **changes)


@ours
def test_logits_and_gradients_are_those_of_transformers(name: str) -> None:
    model, reference = _opened(name)
    tokens_BT = some_tokens()
    expected = reference(tokens_BT).logits
    names, parameters = zip(*reference.named_parameters(), strict=True)
    wanted = torch.autograd.grad(loss_of(expected, tokens_BT), parameters)
    found = Chained(model, dict(reference.named_parameters())).logits(tokens_BT)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(loss_of(found, tokens_BT), parameters)
    for tensor, gradient, each in zip(names, gradients, wanted, strict=True):
        assert (gradient - each).abs().max() <= 1e-5 * max(1.0, float(each.abs().max())), tensor


@ours
def test_packed_documents_are_computed_as_transformers_layers_do(name: str) -> None:
    model, reference = _opened(name)
    tokens_BT = some_tokens()
    documents_BT = torch.tensor([[7] * 5 + [8] * 7, [0] * 3 + [1] * 8 + [0]])
    tensors = dict(reference.named_parameters())
    with torch.no_grad():
        found = Chained(model, tensors).logits(tokens_BT, documents_BT)
        expected = Chained(HuggingFaceBlocks(reference.config), tensors).logits(tokens_BT, documents_BT)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@ours
def test_rotations_have_the_bits_of_transformers(name: str) -> None:
    model, reference = _opened(name)
    hidden = torch.zeros(1, 64, 1)
    expected = reference.model.rotary_emb(hidden, torch.arange(64)[None])
    for found, wanted in zip(model.rotary(64, torch.device("cpu")), expected, strict=True):
        assert torch.equal(found, wanted[0])


@ours
def test_first_weights_are_drawn_as_by_transformers(name: str) -> None:
    ours, _ = _opened(name)
    family, changes = OURS[name]
    theirs = HuggingFaceBlocks(config_of(family, **changes))
    for our_block, their_block in zip(ours.blocks, theirs.blocks, strict=True):
        drawn = []
        for model, block in ((ours, our_block), (theirs, their_block)):
            tensors = {spec.name: torch.empty(spec.shape) for spec in (*block.trained, *block.frozen)}
            RandomWeights(model, seed=3).fill(block, tensors)
            drawn.append({model.parameter_name(block, spec): tensors[spec.name] for spec in block.trained})
        assert drawn[0].keys() == drawn[1].keys()
        for tensor, expected in drawn[1].items():
            assert torch.equal(drawn[0][tensor], expected), tensor


@ours
def test_a_run_of_transformers_layers_can_be_resumed(name: str) -> None:
    model, reference = _opened(name)
    other = HuggingFaceBlocks(reference.config)
    assert _differences(other.config.to_dict(), model.settings) == []
    assert _differences(model.settings, other.config.to_dict()) == []
    assert _tensors(model) == _tensors(other)
    adapted, adapted_other = (with_lora(each, LoraSettings(2, 4.0, dropout=0.1)) for each in (model, other))
    assert _tensors(adapted) == _tensors(adapted_other)
    assert adapted.targets == adapted_other.targets


def _tensors(model: Any) -> dict[str, tuple[str, tuple[int, ...], bool]]:
    return {
        model.parameter_name(block, spec): (block.name, spec.shape, spec in block.trained)
        for block in model.blocks
        for spec in (*block.trained, *block.frozen)
    }


class _Zeros:
    def fill(self, block: Any, tensors: Any) -> None:
        for tensor in tensors.values():
            tensor.zero_()


def test_first_adapters_are_those_of_transformers_layers() -> None:
    model, reference = _opened("qwen2")
    drawn = []
    for each in (model, HuggingFaceBlocks(reference.config)):
        adapted = with_lora(each, LoraSettings(2, 4.0))
        block = adapted.blocks[1]
        tensors = {spec.name: torch.empty(spec.shape) for spec in (*block.trained, *block.frozen)}
        LoraWeights(adapted, _Zeros(), 7).fill(block, tensors)
        drawn.append({spec.name: tensors[spec.name] for spec in block.trained})
    assert drawn[0].keys() == drawn[1].keys()
    assert all(torch.equal(tensor, drawn[1][name]) for name, tensor in drawn[0].items())


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_is_computed_otherwise_is_left_to_transformers(name: str) -> None:
    assert open_llama(_settings(NOT_OURS, name)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": "4"},
        {"num_key_value_heads": 3},
        {"hidden_size": -32},
        {"rms_norm_eps": None},
        {"rope_parameters": "default"},
        {"rope_parameters": {"rope_type": "default", "rope_theta": float("nan")}},
        {"tie_word_embeddings": "yes"},
        {"pad_token_id": 97},
        {"is_causal": False},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"layer_types": ["sliding_attention"] * 3},
        {"per_layer_config": {"1": {"intermediate_size": 48}}},
    ],
    ids=str,
)
def test_unexpected_values_are_left_to_transformers(changes: dict[str, Any]) -> None:
    assert open_llama({**_settings(OURS, "llama"), **changes}) is None


def test_values_that_every_family_has_its_own_of_must_be_there() -> None:
    for missing in ("num_key_value_heads", "rms_norm_eps"):
        settings = _settings(OURS, "qwen2")
        del settings[missing]
        assert open_llama(settings) is None


def test_an_older_config_is_the_same_model() -> None:
    settings = _settings(OURS, "llama3")
    rope = settings.pop("rope_parameters")
    older = {
        **settings,
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": rope,
        "torch_dtype": "bfloat16",
    }
    model, newer = open_llama(older), open_llama(_settings(OURS, "llama3"))
    assert model is not None
    assert newer is not None
    assert torch.equal(model.rotary(40, torch.device("cpu"))[0], newer.rotary(40, torch.device("cpu"))[0])
    assert model.settings["rope_parameters"] == newer.settings["rope_parameters"]
    assert _differences(newer.settings, model.settings) == []


_TRAINS = """
import sys
import torch
from gpubloom.engine.data import Batch
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.model import Model
from gpubloom.plan import TrainConfig
model = {"path": sys.argv[1], "context_length": 64}
config = TrainConfig.model_validate({"method": "lora", "model": model})
model = Model.open(config, vocab_size=400)
executor = move_to_devices(config, model).executor
tokens = torch.ones(1, 2, 64, dtype=torch.int64)
executor.forward_backward(Batch(tokens, tokens))
executor.optimizer_step(1e-3)
print(type(model.blocks.base).__name__, *sorted({"transformers", "sympy"} & set(sys.modules)))
"""


def test_training_such_a_model_uncompiled_loads_neither_transformers_nor_sympy(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", family="qwen2")
    command = [sys.executable, "-c", _TRAINS, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PretrainedLlama"]


def test_weights_with_other_names_are_read_by_transformers(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_tiny_model(tmp_path / "model", family="llama")
    file = folder / "model.safetensors"
    weights = {name.removeprefix("model."): tensor for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    command = [sys.executable, "-c", _TRAINS, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "HuggingFaceBlocks"
