"""The shape of any decoder by its structure: the tensors of its weight files, and the sizes in config.json.

For models whose family `families.py` does not describe. With weights, every tensor is counted as the files
hold it. Without weights (a config.json alone), the layers are taken to be those of Llama, which most decoders
resemble; the count is then an estimate.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.plan.decoder import DecoderShape, LayerShape, Linear
from gpubloom.plan.limits import MAX_CONFIG_LAYERS, MAX_CONFIG_SIZE
from gpubloom.plan.safetensors_header import read_header

Config = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]

# One size, as different configs call it.
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
FFN = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "moe_top_k", "num_experts_per_token")
# Names of model classes that predict the next token.
_CAUSAL = ("ForCausalLM", "LMHeadModel", "LMHead")
_LIST_ITEM = re.compile(r"(?P<path>.*?)\.(?P<index>\d+)\.(?P<rest>.+)")
_EXPERT = re.compile(r"\.\d+\.")


def config_size(config: Config, name: str) -> int | None:
    """A size that config.json names; None where it names none. The file may come from anybody."""
    value = config.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_CONFIG_SIZE):
        raise InputError(
            "model_config_invalid", f"{name} in config.json is not a size of a model: {value!r:.80}."
        )
    return value


def must_be_causal(config: Config) -> None:
    """Refuses what is no decoder-only language model, by what its config says of itself."""
    classes = config.get("architectures")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    if config.get("is_encoder_decoder"):
        what = "it has an encoder and a decoder"
    elif names and not any(name.endswith(_CAUSAL) for name in names):
        what = f"config.json names the architecture {names[0]}"
    else:
        return
    raise InputError(
        "unsupported_architecture",
        f"This model does not predict the next token: {what}. Choose a causal language model (its "
        "architecture ends with ForCausalLM).",
    )


def tensor_shapes(folder: Path) -> Shapes:
    """The shapes of a folder's tensors by name; empty when it holds no readable weights."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        try:
            shapes |= {name: tensor.shape for name, tensor in read_header(file).items()}
        except (OSError, ValueError):
            # What is wrong with the file is said where it is loaded or checked.
            return {}
    return shapes


def shape_by_structure(config: Config, tensors: Shapes) -> DecoderShape:
    """The shape of a decoder; KeyError names a size that config.json lacks."""
    must_be_causal(config)
    return _counted(config, tensors) if tensors else _like_llama(config)


def _counted(config: Config, tensors: Shapes) -> DecoderShape:
    layers, rest = _split(config, tensors)
    hidden, vocabulary = int(_size(config, HIDDEN)), int(_size(config, ("vocab_size",)))
    tables = {name: shape for name, shape in rest.items() if len(shape) > 1}
    words = [name for name, shape in tables.items() if shape[0] == vocabulary]
    if not words:
        # Some vocabularies are padded to a round number of rows.
        words = sorted(tables, key=lambda name: -tables[name][0])[:1]
    if not words:
        raise InputError("model_config_invalid", "The weights have no token embedding.")
    words.sort(key=_is_head)
    rows = tables[words[0]][0]
    positions = [name for name in tables if name not in words]
    tied = len(words) == 1 or bool(config.get("tie_word_embeddings"))
    return DecoderShape(
        family=str(config.get("model_type")),
        vocab_size=rows,
        hidden_size=hidden,
        layers=tuple(_layer(config, index, own) for index, own in enumerate(layers)),
        embedding=(_length(tables[words[0]]), *(_length(tables[name]) for name in positions)),
        head_others=tuple(_length(shape) for shape in rest.values() if len(shape) < 2),
        tied=tied,
        max_positions=_size(config, POSITIONS, None),
        positions_end=any("pos" in name or "wpe" in name for name in positions),
    )


def _split(config: Config, tensors: Shapes) -> tuple[list[Shapes], Shapes]:
    """The tensors of each layer by their path within it, and those outside of the layers."""
    lists = Counter(match["path"] for name in tensors if (match := _LIST_ITEM.fullmatch(name)))
    if not lists:
        raise InputError("model_config_invalid", "The weights have no list of layers.")
    path = lists.most_common(1)[0][0]
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
    rest: dict[str, tuple[int, ...]] = {}
    for name, shape in tensors.items():
        match = _LIST_ITEM.fullmatch(name)
        if match and match["path"] == path:
            layers.setdefault(int(match["index"]), {})[match["rest"]] = shape
        else:
            rest[name] = shape
    count = int(_size(config, LAYERS, len(layers)))
    if count != len(layers) or set(layers) != set(range(count)):
        raise InputError(
            "model_config_invalid",
            f"config.json names {count:,} layers, but the weights hold {len(layers):,}.",
        )
    return [layers[index] for index in range(count)], rest


def _layer(config: Config, index: int, tensors: Shapes) -> LayerShape:
    hidden = int(_size(config, HIDDEN))
    grouped: dict[str, list[tuple[int, ...]]] = {}
    for path, shape in tensors.items():
        # The experts of a mixture, one by one, are copies of one product.
        grouped.setdefault(_EXPERT.sub(".*.", path), []).append(shape)
    matrices = {path: shapes for path, shapes in grouped.items() if len(shapes[0]) > 1 and not _is_norm(path)}
    last_names = Counter(_last(path) for path in matrices)
    active = int(_size(config, EXPERTS_PER_TOKEN, 1))
    linears: list[Linear] = []
    biases: set[str] = set()
    for path, shapes in matrices.items():
        *several, outputs, inputs = shapes[0]
        copies = len(shapes) * _length(tuple(several))
        bias = path.removesuffix("weight") + "bias" if path.endswith(".weight") else ""
        has_bias = bias in grouped and bias not in matrices
        biases |= {bias} if has_bias else set()
        name = _last(path) if last_names[_last(path)] == 1 else path.removesuffix(".weight")
        linears.append(Linear(name, inputs, outputs, has_bias, copies, min(active, copies)))
    query, kv = _attention_sizes(config)
    width = _ffn_width(config, hidden, linears)
    # What leaves the feed-forward network is the layer's last product.
    linears.sort(key=lambda linear: (linear.inputs == width and linear.outputs == hidden, linear.copies))
    wide = [linear for linear in linears if width in (linear.inputs, linear.outputs)]
    products = sum(linear.inputs * linear.outputs for linear in wide) / (hidden * width)
    others = tuple(
        _length(shape)
        for path, shapes in grouped.items()
        if path not in matrices and path not in biases
        for shape in shapes
    )
    return LayerShape(
        tuple(linears),
        others,
        query,
        kv,
        width,
        gated=products >= 3 or any("gate_up" in linear.name for linear in linears),
        window=layer_window(config, index),
    )


def _like_llama(config: Config) -> DecoderShape:
    hidden, vocabulary = int(_size(config, HIDDEN)), int(_size(config, ("vocab_size",)))
    width = int(_size(config, FFN, 4 * hidden))
    query, kv = _attention_sizes(config)
    linears = (
        Linear("q_proj", hidden, query),
        Linear("k_proj", hidden, kv),
        Linear("v_proj", hidden, kv),
        Linear("o_proj", query, hidden),
        Linear("gate_proj", hidden, width),
        Linear("up_proj", hidden, width),
        Linear("down_proj", width, hidden),
    )
    count = int(_size(config, LAYERS))
    if count > MAX_CONFIG_LAYERS:
        raise InputError(
            "model_config_invalid", f"config.json names {count:,} layers, more than any model has."
        )
    layers = tuple(
        LayerShape(linears, (hidden, hidden), query, kv, width, window=layer_window(config, index))
        for index in range(count)
    )
    return DecoderShape(
        family=str(config.get("model_type")),
        vocab_size=vocabulary,
        hidden_size=hidden,
        layers=layers,
        embedding=(vocabulary * hidden,),
        head_others=(hidden,),
        tied=bool(config.get("tie_word_embeddings")),
        max_positions=_size(config, POSITIONS, None),
    )


def layer_window(config: Config, index: int) -> int | None:
    """How far back a layer sees by `layer_types`, when not to the beginning."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and index < len(kinds) and kinds[index] == "sliding_attention":
        return config_size(config, "sliding_window") or None
    return None


def _attention_sizes(config: Config) -> tuple[int, int]:
    """Width of all queries, and of all keys."""
    hidden = int(_size(config, HIDDEN))
    # A model without attention has none of these; its widths are those of its matrices.
    heads = int(_size(config, HEADS, 1))
    head = int(_size(config, ("head_dim",), hidden // heads))
    return heads * head, int(_size(config, KV_HEADS, heads)) * head


def _ffn_width(config: Config, hidden: int, linears: list[Linear]) -> int:
    said = _size(config, FFN, None)
    if said is not None:
        return int(said)
    return max((linear.inputs for linear in linears if linear.outputs == hidden), default=4 * hidden)


def _size(config: Config, names: tuple[str, ...], *otherwise: Any) -> Any:
    for name in names:
        if (value := config_size(config, name)) is not None:
            return value
    if otherwise:
        return otherwise[0]
    raise KeyError(names[0])


def _length(shape: tuple[int, ...]) -> int:
    length = 1
    for dimension in shape:
        length *= dimension
    return length


def _last(path: str) -> str:
    return path.removesuffix(".weight").rpartition(".")[2]


def _is_norm(path: str) -> bool:
    """Cohere's norms of queries have a row for each head: matrices that multiply nothing."""
    return "norm" in path.removesuffix(".weight").rpartition(".")[2].lower()


def _is_head(name: str) -> bool:
    return "head" in name or name.startswith(("embed_out", "output"))
