"""The shape of a Hugging Face model: from its config.json alone for the families below, else by structure.

A family is here so that its count is exact before its weights are there: a test compares each one with the
model that transformers builds. No model is refused because its family is not here: `structure.py` counts
its tensors. Mixtures of experts are counted exactly too; only their speed is a guess.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan.decoder import DecoderShape, LayerShape, Linear
from gpubloom.plan.limits import MAX_CONFIG_LAYERS
from gpubloom.plan.structure import Shapes, config_size, shape_by_structure, tensor_shapes

Config = Mapping[str, Any]

# The engine has layers of its own for these: training and decoding them needs no modules of transformers.
OWN_LAYERS = frozenset({"llama", "mistral", "qwen2", "qwen3"})

# Every number that is read below.
_SIZES = (
    *("hidden_size", "n_embd", "vocab_size", "intermediate_size", "ffn_hidden_size", "n_inner"),
    *("num_hidden_layers", "n_layer", "max_position_embeddings", "n_positions", "sliding_window"),
    *("num_attention_heads", "num_key_value_heads", "num_kv_heads", "head_dim", "num_ln_in_parallel_attn"),
    *("num_local_experts", "num_experts", "num_experts_per_tok", "decoder_sparse_step"),
    *("moe_intermediate_size", "shared_expert_intermediate_size"),
)
_LAYER_NORM = {"phi", "falcon", "gpt2", "gpt_neox"}


def read_decoder(folder: Path) -> DecoderShape:
    """The shape of the model in a folder; one sentence when there is none that this product can train."""
    file = folder / "config.json"
    if not file.is_file():
        raise InputError("not_a_model_folder", f"{folder} is not a model folder: it has no config.json.")
    try:
        config = read_json(file)
        return decoder_shape(config, {} if config.get("model_type") in FAMILIES else tensor_shapes(folder))
    except KeyError as missing:
        raise InputError("model_config_invalid", f"{file} has no value for {missing.args[0]}.") from None
    except (TypeError, LookupError, ZeroDivisionError) as problem:
        raise InputError("model_config_invalid", f"{file} does not describe a model: {problem}.") from None


def decoder_shape(config: Config, tensors: Shapes | None = None) -> DecoderShape:
    """The shape that a config.json describes; KeyError names a field that is missing.

    `tensors`: what the weight files hold, for families that are not described here.
    """
    family = str(config.get("model_type"))
    if family not in FAMILIES:
        return shape_by_structure(config, tensors or {})
    # Null says as little as nothing.
    config = {name: value for name, value in config.items() if value is not None}
    for name in _SIZES:
        config_size(config, name)
    layer, tied_unless_said = FAMILIES[family]
    hidden, vocabulary = _hidden(config), config["vocab_size"]
    positions = config.get("n_positions" if family == "gpt2" else "max_position_embeddings")
    # GPT-2 learns one vector per position; everything else here turns or biases attention instead.
    table = (config["n_positions"] * hidden,) if family == "gpt2" else ()
    layer_norm = family in _LAYER_NORM
    return DecoderShape(
        family=family,
        vocab_size=vocabulary,
        hidden_size=hidden,
        layers=_of_one_object_per_kind(layer(config, index) for index in range(_layers(config))),
        embedding=(vocabulary * hidden, *table),
        head_others=_norm(hidden, layer_norm) + ((vocabulary,) if family == "phi" else ()),
        tied=bool(_said(config, "tie_word_embeddings", tied_unless_said)),
        max_positions=positions,
        positions_end=family == "gpt2",
    )


def _of_one_object_per_kind(layers: Iterable[LayerShape]) -> tuple[LayerShape, ...]:
    kinds: dict[LayerShape, LayerShape] = {}
    return tuple(kinds.setdefault(layer, layer) for layer in layers)


def _llama(config: Config, index: int) -> LayerShape:
    """Gated feed-forward, separate projections; most families differ from it in biases and norms."""
    family, hidden = config["model_type"], _hidden(config)
    query, kv, head = _attention_sizes(config)
    bias = bool(config.get("attention_bias", False))
    qkv_bias = bias or bool(_said(config, "qkv_bias", family in {"qwen2", "qwen2_moe"}))
    attention = (
        Linear("q_proj", hidden, query, qkv_bias),
        Linear("k_proj", hidden, kv, qkv_bias),
        Linear("v_proj", hidden, kv, qkv_bias),
        Linear("o_proj", query, hidden, bias),
    )
    feed_forward, width = _feed_forward(config, index)
    norms = (hidden,) * (4 if family in {"gemma2", "gemma3_text"} else 2)
    head_norms = (head, head) if family in {"qwen3", "qwen3_moe", "gemma3_text"} else ()
    return LayerShape(
        (*attention, *feed_forward), norms + head_norms, query, kv, width, window=_window(config, index)
    )


def _feed_forward(config: Config, index: int) -> tuple[tuple[Linear, ...], int]:
    family, hidden = config["model_type"], _hidden(config)
    experts = _first_said(config, ("num_local_experts", "num_experts"))
    if not experts or index in (config.get("mlp_only_layers") or ()):
        return _gated(hidden, config["intermediate_size"], bool(config.get("mlp_bias", False)))
    if (index + 1) % (config.get("decoder_sparse_step") or 1):
        return _gated(hidden, config["intermediate_size"], False)
    width = config["intermediate_size" if family == "mixtral" else "moe_intermediate_size"]
    active = config["num_experts_per_tok"]
    router: tuple[Linear, ...] = (Linear("gate", hidden, experts),)
    shared = 0
    if family == "qwen2_moe":
        shared = config["shared_expert_intermediate_size"]
        router += (Linear("shared_expert_gate", hidden, 1), *_gated(hidden, shared, False)[0])
    chosen = (
        Linear("gate_up_proj", hidden, 2 * width, copies=experts, active=active),
        Linear("down_proj", width, hidden, copies=experts, active=active),
    )
    return (*router, *chosen), active * width + shared


def _gated(hidden: int, width: int, bias: bool) -> tuple[tuple[Linear, ...], int]:
    return (
        Linear("gate_proj", hidden, width, bias),
        Linear("up_proj", hidden, width, bias),
        Linear("down_proj", width, hidden, bias),
    ), width


def _phi3(config: Config, index: int) -> LayerShape:
    hidden, width = _hidden(config), config["intermediate_size"]
    query, kv, _head = _attention_sizes(config)
    linears = (
        Linear("qkv_proj", hidden, query + 2 * kv),
        Linear("o_proj", query, hidden),
        Linear("gate_up_proj", hidden, 2 * width),
        Linear("down_proj", width, hidden),
    )
    return LayerShape(linears, (hidden, hidden), query, kv, width, window=_window(config, index))


def _phi(config: Config, index: int) -> LayerShape:
    hidden, width = _hidden(config), config["intermediate_size"]
    query, kv, head = _attention_sizes(config)
    linears = (
        Linear("q_proj", hidden, query, bias=True),
        Linear("k_proj", hidden, kv, bias=True),
        Linear("v_proj", hidden, kv, bias=True),
        Linear("dense", query, hidden, bias=True),
        Linear("fc1", hidden, width, bias=True),
        Linear("fc2", width, hidden, bias=True),
    )
    head_norms = 2 * _norm(head, with_bias=True) if config.get("qk_layernorm") else ()
    return LayerShape(linears, _norm(hidden, with_bias=True) + head_norms, query, kv, width, gated=False)


def _falcon(config: Config, index: int) -> LayerShape:
    hidden = _hidden(config)
    width = config.get("ffn_hidden_size") or 4 * hidden
    heads, bias = config["num_attention_heads"], bool(config.get("bias", False))
    head, new = hidden // heads, bool(config.get("new_decoder_architecture", False))
    grouped = config.get("num_kv_heads") or heads
    alone = 1 if config.get("multi_query", True) else heads
    kv = (grouped if new else alone) * head
    linears = (
        Linear("query_key_value", hidden, hidden + 2 * kv, bias),
        Linear("dense", hidden, hidden, bias),
        Linear("dense_h_to_4h", hidden, width, bias),
        Linear("dense_4h_to_h", width, hidden, bias),
    )
    parallel_norms = config.get("num_ln_in_parallel_attn") or (2 if new else 1)
    norms = parallel_norms if config.get("parallel_attn", True) else 2
    return LayerShape(linears, norms * _norm(hidden, with_bias=True), hidden, kv, width, gated=False)


def _gpt2(config: Config, index: int) -> LayerShape:
    hidden = _hidden(config)
    width = config.get("n_inner") or 4 * hidden
    linears = (
        Linear("attn.c_attn", hidden, 3 * hidden, bias=True),
        Linear("attn.c_proj", hidden, hidden, bias=True),
        Linear("mlp.c_fc", hidden, width, bias=True),
        Linear("mlp.c_proj", width, hidden, bias=True),
    )
    return LayerShape(linears, 2 * _norm(hidden, with_bias=True), hidden, hidden, width, gated=False)


def _gpt_neox(config: Config, index: int) -> LayerShape:
    hidden, width = _hidden(config), config["intermediate_size"]
    bias = bool(_said(config, "attention_bias", True))
    linears = (
        Linear("query_key_value", hidden, 3 * hidden, bias),
        Linear("dense", hidden, hidden, bias),
        Linear("dense_h_to_4h", hidden, width, bias=True),
        Linear("dense_4h_to_h", width, hidden, bias=True),
    )
    return LayerShape(linears, 2 * _norm(hidden, with_bias=True), hidden, hidden, width, gated=False)


# What makes a layer, and whether the head shares the embedding's weights unless the config says otherwise.
FAMILIES: dict[str, tuple[Callable[[Config, int], LayerShape], bool]] = {
    "llama": (_llama, False),
    "qwen2": (_llama, False),
    "qwen3": (_llama, False),
    "mistral": (_llama, False),
    "smollm3": (_llama, True),
    "gemma": (_llama, True),
    "gemma2": (_llama, True),
    "gemma3_text": (_llama, True),
    "mixtral": (_llama, False),
    "qwen2_moe": (_llama, False),
    "qwen3_moe": (_llama, False),
    "phi": (_phi, False),
    "phi3": (_phi3, False),
    "falcon": (_falcon, True),
    "gpt2": (_gpt2, True),
    "gpt_neox": (_gpt_neox, False),
}


def _attention_sizes(config: Config) -> tuple[int, int, int]:
    """Width of all queries, of all keys, and of one head."""
    heads = config["num_attention_heads"]
    kv_heads = _said(config, "num_key_value_heads", heads)
    head = _said(config, "head_dim", _hidden(config) // heads)
    return heads * head, kv_heads * head, head


def _window(config: Config, index: int) -> int | None:
    """How far back a layer sees, when not to the beginning."""
    window = config.get("sliding_window") or None
    kinds = config.get("layer_types")
    if kinds:
        return window if kinds[index] == "sliding_attention" else None
    switched_off = config.get("use_sliding_window") is False
    return None if switched_off or config["model_type"] not in {"mistral", "phi3", "mixtral"} else window


def _norm(size: int, with_bias: bool) -> tuple[int, ...]:
    return (size, size) if with_bias else (size,)


def _hidden(config: Config) -> int:
    return int(config["n_embd" if config["model_type"] == "gpt2" else "hidden_size"])


def _layers(config: Config) -> int:
    count = int(config["n_layer" if config["model_type"] == "gpt2" else "num_hidden_layers"])
    if count > MAX_CONFIG_LAYERS:
        # The file may come from anybody, and every layer is an object here.
        raise InputError(
            "model_config_invalid", f"config.json names {count:,} layers, more than any model has."
        )
    return count


def _said(config: Config, name: str, otherwise: Any) -> Any:
    value = config.get(name)
    return otherwise if value is None else value


def _first_said(config: Config, names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)
