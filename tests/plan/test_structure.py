"""Families that the planner does not describe are counted by the tensors of their weights."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.plan import Hardware, TrainConfig, plan
from gpubloom.plan.families import FAMILIES, decoder_shape, read_decoder
from tests.errors import raises
from tests.plan.machines import H200
from tests.plan.test_families import SIZES

# What their configs call sizes differs, and so do their tensors: norms before or after, biases, parallel
# blocks, tables of positions, fused projections, experts, no attention at all.
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("olmo2", {}),
    ("granite", {}),
    ("cohere", {}),
    ("cohere", {"use_qk_norm": True}),
    ("stablelm", {}),
    ("stablelm", {"use_qkv_bias": True, "qk_layernorm": True}),
    ("starcoder2", {}),
    ("nemotron", {}),
    ("glm", {"head_dim": 12}),
    ("bloom", {"n_layer": 3, "n_head": 4}),
    ("opt", {"ffn_dim": 80, "word_embed_proj_dim": 48}),
    ("gptj", {"rotary_dim": 4, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    ("olmoe", {"num_experts": 4}),
    ("mamba", {}),
]


def saved(folder: Path, family: str, options: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **options})
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("family", "options"), OTHERS)
def test_a_family_is_counted_by_its_weights(tmp_path: Path, family: str, options: dict[str, Any]) -> None:
    assert family not in FAMILIES
    model = saved(tmp_path, family, options)
    shape = read_decoder(tmp_path)
    assert shape.parameters == model.num_parameters()
    assert len(shape.layers) == 3
    assert shape.vocab_size == 211
    assert shape.tied is (model.get_output_embeddings().weight is model.get_input_embeddings().weight)
    config = {"model": {"path": str(tmp_path), "context_length": 32}, "batch_size": 1}
    for method in ("full", "lora"):
        answer = plan(TrainConfig.model_validate({**config, "method": method}), Hardware.parse(H200))
        assert answer.parameters == shape.parameters


def test_the_last_product_of_a_layer_is_that_of_its_feed_forward_network(tmp_path: Path) -> None:
    saved(tmp_path, "olmo2", {})
    layer = read_decoder(tmp_path).layers[0]
    assert layer.linears[-1].name == "down_proj"
    assert (layer.query_size, layer.kv_size, layer.ffn_size, layer.gated) == (48, 24, 80, True)


def test_a_config_without_weights_is_estimated_as_llama(tmp_path: Path) -> None:
    model = saved(tmp_path, "granite", {})
    (tmp_path / "model.safetensors").unlink()
    assert read_decoder(tmp_path).parameters == pytest.approx(model.num_parameters(), rel=0.02)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
        {"model_type": "t5", "is_encoder_decoder": True},
        {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"]},
    ],
)
def test_what_does_not_predict_the_next_token_is_refused(config: dict[str, Any]) -> None:
    with raises(ValueError, code="unsupported_architecture", match="next token"):
        decoder_shape({**SIZES, **config})


def test_weights_with_fewer_layers_than_the_config_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "olmo2", {})
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"num_hidden_layers": 4, "layer_types": None}))
    with raises(ValueError, code="model_config_invalid", match="4 layers.*hold 3"):
        read_decoder(tmp_path)
