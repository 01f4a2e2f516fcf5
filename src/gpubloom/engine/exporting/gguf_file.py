"""A model as one GGUF file: what llama.cpp, and what is built on it, reads.

Written here for the families whose conversion is known: the names of tensors, the order of rows in the
matrices that rotary positions touch, the metadata. Others need llama.cpp's own converter (`external.py`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpubloom.engine.exporting.gguf_tokenizer import GgufTokenizer
from gpubloom.engine.exporting.layouts import DTYPES, TEXT_FILES, Precision, merged_config
from gpubloom.engine.exporting.weights import ExportWeights
from gpubloom.engine.serving.resolved_model import ResolvedModel

# Family to architecture. llama.cpp turns pairs of neighbours in llama's heads, halves in the others'.
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_FILE_TYPES: dict[Precision, int] = {"fp32": 0, "fp16": 1, "bf16": 32}
_DIVISORS = "rope_freqs.weight"


@dataclass(frozen=True)
class GgufTensor:
    """A tensor here and there. `heads`: its rows are reordered head by head."""

    name: str
    there: str
    shape: tuple[int, ...]
    heads: int | None


def can_write(found: ResolvedModel) -> bool:
    config = merged_config(found, "fp32")
    return str(config.get("model_type")) in ARCHITECTURES and _scaling(config)[0] in _KNOWN_SCALING


def what_differs(found: ResolvedModel) -> list[str]:
    """What llama.cpp computes otherwise than transformers does, for models that are written here."""
    config = merged_config(found, "fp32")
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window", config["model_type"] == "mistral") is False:
        return []
    return [
        f"The model sees {window:,} tokens back; llama.cpp lets it see the whole text, which is the same for "
        "shorter ones."
    ]


def write_gguf(
    path: Path, found: ResolvedModel, precision: Precision, keep_going: Callable[[], None] = lambda: None
) -> None:
    """Writes the file tensor by tensor; UnknownTokenizer when llama.cpp would read texts differently."""
    import gguf

    config = merged_config(found, precision)
    weights = ExportWeights.of(found)
    tokenizer = _tokenizer(found, int(config["vocab_size"]))
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config["model_type"]])
    try:
        _add_metadata(writer, config, precision, (found.run_dir or found.folder).resolve().name)
        _add_tokenizer(writer, tokenizer)
        divisors = _divisors(config)
        if divisors is not None:
            writer.add_tensor_info(_DIVISORS, divisors.shape, divisors.dtype, divisors.nbytes)
        planned = gguf_tensors(weights, config)
        for tensor in planned:
            kind, size = _kind(tensor, precision)
            count = math.prod(tensor.shape)
            writer.add_tensor_info(
                tensor.there, tensor.shape, np.dtype(np.float32), count * size, raw_dtype=kind
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if divisors is not None:
            writer.write_tensor_data(divisors)
        for tensor, (name, values) in zip(planned, weights, strict=True):
            keep_going()
            assert tensor.name == name, f"{name} came instead of {tensor.name}"
            writer.write_tensor_data(_stored(values, tensor, precision))
    finally:
        writer.close()


def gguf_tensors(weights: ExportWeights, config: dict[str, Any]) -> list[GgufTensor]:
    """Every tensor of a model with its name in the file."""
    import gguf

    architecture = ARCHITECTURES[config["model_type"]]
    kind = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, int(config["num_hidden_layers"]))
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    found = []
    for name, shape in weights.shapes:
        there = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if there is None:
            raise ValueError(f"llama.cpp knows no tensor {name} in models of type {config['model_type']}.")
        turned = {"q_proj": heads, "k_proj": kv_heads} if architecture == "llama" else {}
        found.append(GgufTensor(name, there, shape, turned.get(name.split(".")[-2])))
    return found


def read_back(path: Path, planned: list[GgufTensor]) -> Iterator[tuple[str, Tensor]]:
    """The file's tensors by their names here, as FP32, rows in their order here."""
    import gguf

    held = {str(tensor.name): tensor for tensor in gguf.GGUFReader(path).tensors}
    for tensor in planned:
        there = held[tensor.there]
        values = torch.from_numpy(np.array(gguf.quants.dequantize(there.data, there.tensor_type)))
        yield tensor.name, _put_back(values.reshape(tensor.shape), tensor)


def _stored(values: Tensor, tensor: GgufTensor, precision: Precision) -> np.ndarray[Any, Any]:
    if tensor.heads is not None:
        # Halves of a head become pairs of neighbours.
        rows = values.shape[0] // tensor.heads
        values = (
            values.reshape(tensor.heads, 2, rows // 2, *values.shape[1:])
            .transpose(1, 2)
            .reshape(values.shape)
        )
    if len(tensor.shape) == 1:
        return values.float().contiguous().numpy()
    values = values.to(DTYPES[precision]).contiguous()
    return values.view(torch.int16).numpy() if precision == "bf16" else values.numpy()


def _put_back(values: Tensor, tensor: GgufTensor) -> Tensor:
    if tensor.heads is None:
        return values
    rows = values.shape[0] // tensor.heads
    return values.reshape(tensor.heads, rows // 2, 2, *values.shape[1:]).transpose(1, 2).reshape(values.shape)


def _kind(tensor: GgufTensor, precision: Precision) -> tuple[Any, int]:
    """A tensor's type in the file and the bytes of one value. Norms and biases stay exact."""
    import gguf

    types = gguf.GGMLQuantizationType
    if len(tensor.shape) == 1 or precision == "fp32":
        return types.F32, 4
    return (types.BF16 if precision == "bf16" else types.F16), 2


def _tokenizer(found: ResolvedModel, rows: int) -> GgufTokenizer:
    files = {name: file for name in TEXT_FILES if (file := found.file(name)) is not None}
    if "tokenizer.json" not in files:
        raise ValueError(f"{found.folder} has no tokenizer.json, which a GGUF file needs.")
    return GgufTokenizer.read(files["tokenizer.json"], rows, files)


def _add_metadata(writer: Any, config: dict[str, Any], precision: Precision, name: str) -> None:
    import gguf

    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    head = int(config.get("head_dim") or hidden // heads)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_file_type(_FILE_TYPES[precision])
    writer.add_vocab_size(int(config["vocab_size"]))
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(hidden)
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(float(_rope(config).get("rope_theta") or config.get("rope_theta") or 10_000.0))
    writer.add_layer_norm_rms_eps(float(config.get("rms_norm_eps") or 1e-6))
    kind, scaling = _scaling(config)
    if kind in {"linear", "yarn"}:
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(float(scaling["factor"]))
    if kind == "yarn" and scaling.get("original_max_position_embeddings"):
        writer.add_rope_scaling_orig_ctx_len(int(scaling["original_max_position_embeddings"]))


def _add_tokenizer(writer: Any, tokenizer: GgufTokenizer) -> None:
    writer.add_tokenizer_model(tokenizer.model)
    writer.add_tokenizer_pre(tokenizer.rules)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.kinds)
    if tokenizer.scores is not None:
        writer.add_token_scores(tokenizer.scores)
        writer.add_add_space_prefix(tokenizer.space_prefix)
    if tokenizer.merges:
        writer.add_token_merges(tokenizer.merges)
    for kind, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("unk", writer.add_unk_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        if kind in tokenizer.special:
            add(tokenizer.special[kind])
    writer.add_add_bos_token(tokenizer.adds["bos"])
    writer.add_add_eos_token(tokenizer.adds["eos"])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


_KNOWN_SCALING = ("default", "linear", "yarn", "llama3")


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _scaling(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    rope = _rope(config)
    return str(rope.get("rope_type") or rope.get("type") or "default"), rope


def _divisors(config: dict[str, Any]) -> np.ndarray[Any, Any] | None:
    """What Llama 3.1 divides its frequencies by: one for short waves, all for long ones, a blend between."""
    kind, rope = _scaling(config)
    if kind != "llama3":
        return None
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    head = int(config.get("head_dim") or hidden // heads)
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    factor, trained = float(rope["factor"]), float(rope["original_max_position_embeddings"])
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    waves = 2 * math.pi * theta ** (np.arange(0, head, 2) / head)
    blend = np.clip((trained / waves - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1 - blend) / factor + blend)).astype(np.float32)
