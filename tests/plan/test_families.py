"""Shapes read from a config.json count exactly what transformers builds."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import FAMILIES, decoder_shape, read_decoder
from tests.errors import raises

SIZES = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
HEAD = {"head_dim": 16}
# One tiny config of each family, and those options that change which tensors it has.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, **HEAD}),
    ("qwen2", {}),
    ("qwen3", HEAD),
    ("mistral", HEAD),
    ("smollm3", {}),
    ("gemma", HEAD),
    ("gemma2", HEAD),
    ("gemma3_text", HEAD),
    ("phi", {}),
    ("phi", {"qk_layernorm": True}),
    ("phi3", {}),
    ("falcon", {}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    ("falcon", {"multi_query": False, "parallel_attn": False}),
    ("gpt2", {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    ("gpt_neox", {}),
    ("gpt_neox", {"attention_bias": False}),
    ("mixtral", {"num_local_experts": 4}),
    ("qwen2_moe", {"num_experts": 6, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}),
    ("qwen2_moe", {"num_experts": 6, "decoder_sparse_step": 2, "mlp_only_layers": [0]}),
    ("qwen3_moe", {"num_experts": 6, "moe_intermediate_size": 24, **HEAD}),
]


def built(family: str, options: dict[str, Any], *, tied: bool) -> tuple[DecoderShape, Any]:
    """Our shape from the config as it is written to disk, and the model that transformers builds from it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 211} if family == "gpt2" else SIZES
    config = transformers.AutoConfig.for_model(family, **{**sizes, **options}, tie_word_embeddings=tied)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return decoder_shape(json.loads(config.to_json_string(use_diff=True))), model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("family", "options"), CASES)
def test_every_family_is_counted_as_transformers_builds_it(
    family: str, options: dict[str, Any], tied: bool
) -> None:
    shape, model = built(family, options, tied=tied)
    assert shape.parameters == model.num_parameters()
    inner = next(
        module for name, module in model.named_children() if name != "lm_head" and name != "embed_out"
    )
    layers = next(part for name in ("layers", "h") if (part := getattr(inner, name, None)) is not None)
    counted = [sum(tensor.numel() for tensor in layer.parameters()) for layer in layers]
    assert [layer.parameters for layer in shape.layers] == counted
    assert [sorted(layer.tensors) for layer in shape.layers] == [
        sorted(tensor.numel() for tensor in layer.parameters()) for layer in layers
    ]
    assert (shape.head_block == ()) is tied


def test_no_family_is_left_untested() -> None:
    assert {family for family, _ in CASES} == set(FAMILIES)


def test_layers_that_see_a_window_only_say_so() -> None:
    shape, _model = built("gemma3_text", {**HEAD, "sliding_window": 8, "num_hidden_layers": 6}, tied=True)
    assert [layer.window for layer in shape.layers] == [8, 8, 8, 8, 8, None]


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with raises(ValueError, code="not_a_model_folder"):
        read_decoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with raises(ValueError, code="model_config_invalid", match="hidden_size"):
        read_decoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
    with raises(ValueError, code="model_config_invalid", match="vocab_size"):
        read_decoder(tmp_path)


def test_a_config_that_would_fill_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", **SIZES, "num_hidden_layers": 10**12}))
    with raises(ValueError, code="model_config_invalid", match="layers"):
        read_decoder(tmp_path)
    file.write_text('{"a":' * 100_000)
    with raises(ValueError, code="not_json"):
        read_decoder(tmp_path)
    with file.open("wb") as sparse:
        sparse.truncate(8 << 30)
    with raises(ValueError, code="unreadable_file", match="too large"):
        read_decoder(tmp_path)


@pytest.mark.parametrize("family", ["llama", "not_in_the_list"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", [211]),
        ("hidden_size", "48"),
        ("intermediate_size", -1),
        ("num_hidden_layers", 2.5),
        ("num_attention_heads", 0),
        ("head_dim", 10**30),
        ("num_key_value_heads", {}),
        ("max_position_embeddings", "64"),
    ],
)
def test_a_size_that_no_model_has_is_named(tmp_path: Path, family: str, name: str, value: Any) -> None:
    config = {"model_type": family, **SIZES, name: value}
    if value == 0:
        config["head_dim"] = None
    (tmp_path / "config.json").write_text(json.dumps(config))
    with raises(ValueError, code="model_config_invalid"):
        read_decoder(tmp_path)


def test_null_in_a_config_is_a_missing_value(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llama", **SIZES, "intermediate_size": None})
    )
    with raises(ValueError, code="model_config_invalid", match="intermediate_size"):
        read_decoder(tmp_path)


def test_a_config_with_a_number_of_too_many_digits_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": ' + "9" * 5_000 + "}")
    with raises(ValueError, code="not_json"):
        read_decoder(tmp_path)
