"""The engine's own Llama architecture as a Hugging Face folder: config.json, weights, tokenizer."""

from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.models import TransformerLM
from gpubloom.errors import InputError
from gpubloom.hub.weight_index import UnsafeModelError, read_weight_index
from gpubloom.json_files import read_json
from gpubloom.plan import ModelShape

WEIGHTS_STEM = "model"
WEIGHTS_FILE = f"{WEIGHTS_STEM}.safetensors"
WEIGHTS_INDEX = f"{WEIGHTS_FILE}.index.json"
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"

_BLOCK_NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "head.norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}


def has_weights(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (WEIGHTS_FILE, WEIGHTS_INDEX))


def read_shape(folder: Path) -> ModelShape:
    """The shape of an exported model."""
    try:
        config = read_json(folder / CONFIG_FILE)
    except InputError as problem:
        raise InputError("not_a_model_folder", f"{folder} is not a model folder: {problem}.") from None
    if config.get("model_type") != "llama":
        raise InputError(
            "unsupported_architecture",
            f"{folder} does not contain a llama model, the only architecture that is supported here.",
        )
    try:
        return ModelShape(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            ffn_size=config["intermediate_size"],
            context_length=config["max_position_embeddings"],
            tie_embeddings=config["tie_word_embeddings"],
            rope_theta=config["rope_theta"],
            norm_eps=config["rms_norm_eps"],
        )
    except KeyError as missing:
        raise InputError(
            "model_config_invalid", f"{folder / CONFIG_FILE} has no value for {missing}."
        ) from None


def read_weights(folder: Path, shape: ModelShape) -> dict[str, Tensor]:
    """The weights by the engine's names; ValueError when a tensor is missing or has another size."""
    tensors: dict[str, Tensor] = {}
    for file in _weight_files(folder):
        try:
            tensors |= safetensors.torch.load_file(folder / file)
        except (OSError, safetensors.SafetensorError) as problem:
            raise InputError("unreadable_file", f"{folder / file} cannot be read: {problem}.") from None
    weights = {}
    for name, size in _tensor_sizes(shape).items():
        tensor = tensors.get(hugging_face_name(name))
        if tensor is None or tensor.shape != size:
            found = "is missing" if tensor is None else f"has size {tuple(tensor.shape)} instead of {size}"
            raise InputError("weights_mismatch", f"{folder}: tensor {hugging_face_name(name)} {found}.")
        weights[name] = tensor
    return weights


def is_own(folder: Path) -> bool:
    """Whether the engine's own model computes what a folder holds: every setting is one it knows."""
    try:
        config = read_json(folder / CONFIG_FILE)
        return bool(config == hugging_face_config(read_shape(folder), config["eos_token_id"]))
    except (OSError, ValueError, KeyError):
        return False


def load_model(folder: Path) -> tuple[TransformerLM, Tokenizer]:
    """A model of the engine's own and its tokenizer, ready to generate on the CPU."""
    shape = read_shape(folder)
    weights = read_weights(folder, shape)
    model = TransformerLM(shape)
    model.load_state_dict(weights, strict=not shape.tie_embeddings)
    return model, Tokenizer.load(folder / TOKENIZER_FILE)


def _weight_files(folder: Path) -> list[str]:
    if not (folder / WEIGHTS_INDEX).is_file():
        return [WEIGHTS_FILE]
    try:
        return sorted(set(read_weight_index(folder / WEIGHTS_INDEX).values()))
    except UnsafeModelError:
        raise
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(
            "unreadable_file", f"{folder / WEIGHTS_INDEX} cannot be read: {problem!r}."
        ) from None


def _tensor_sizes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(parameter.shape) for name, parameter in TransformerLM(shape).named_parameters()}


def hugging_face_name(name: str) -> str:
    return _BLOCK_NAMES.get(name) or f"model.{name}"


def hugging_face_config(shape: ModelShape, end_of_text: int | None) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "max_position_embeddings": shape.context_length,
        "tie_word_embeddings": shape.tie_embeddings,
        "rms_norm_eps": shape.norm_eps,
        # transformers 5 reads rope_parameters, version 4 and most other readers rope_theta.
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": end_of_text,
        "dtype": "float32",
    }
