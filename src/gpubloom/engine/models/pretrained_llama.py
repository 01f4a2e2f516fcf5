"""PretrainedLlama: Llama, Mistral, Qwen2 and Qwen3 models by the engine's own layers, without transformers.

Importing transformers takes longer than everything else that a short fine-tuning does before its first step.
These families differ from the engine's own architecture in biases, norms of queries and keys, and rotary
frequencies only. A config.json that asks for anything else, or that says something unexpected, is none of
ours: transformers opens that model, or says what is wrong with it.

Tensors, first adapters and checkpoints are named as for transformers' modules, so a run may be resumed by
either.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.engine.models.blocks import BlockSpec, Tables, Weights
from gpubloom.engine.models.dropout import unused_dropouts
from gpubloom.engine.models.transformer import EMBEDDING, LlamaBlocks, Variant, rotations
from gpubloom.plan.families import OWN_LAYERS
from gpubloom.plan.rope import rope_parameters

# Fields that change what such a model computes, each with its only value here; missing ones have the first.
_USUAL: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "is_causal": (True,),
    "is_encoder_decoder": (False,),
    "quantization_config": (None,),
    "pretraining_tp": (1,),
    "partial_rotary_factor": (None, 1, 1.0),
    "per_layer_config": (None,),
}
# What transformers has other names for, or takes as the family says; code of a model is never used.
_OLD_NAMES = frozenset({"rope_theta", "rope_scaling", "torch_dtype", "auto_map"})
# Above this size the fused kernels that share key-value heads between heads do not exist.
_LARGEST_HEAD = 256


class _NotOurs(Exception):
    """transformers opens this model."""


@dataclass(frozen=True)
class _LlamaSizes:
    """The sizes in a config.json."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_size: int
    tie_embeddings: bool
    rope_theta: float
    norm_eps: float


class PretrainedLlama(LlamaBlocks):
    """A model by its config.json."""

    def __init__(
        self, sizes: _LlamaSizes, variant: Variant, frequencies: Tensor, settings: Mapping[str, Any]
    ) -> None:
        super().__init__(sizes, variant)
        self.settings = _as_saved(settings)
        self.notes = tuple(unused_dropouts(settings))
        self._frequencies = {frequencies.device: frequencies}
        # Its row of the embedding gets no gradient.
        self._padding = settings.get("pad_token_id")
        if self._padding is not None and self._padding not in range(sizes.vocab_size):
            raise _NotOurs
        self._deviation = _number(settings, "initializer_range") if "initializer_range" in settings else 0.02

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        return F.embedding(tokens_BT, weights[EMBEDDING], padding_idx=self._padding)

    @torch.no_grad()
    def initialize(self, block: BlockSpec, tensors: Weights, generator: torch.Generator) -> None:
        """First weights, drawn as transformers draws them."""
        for name, tensor in tensors.items():
            if tensor.ndim == 1:
                tensor.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            tensor.normal_(0.0, self._deviation, generator=generator)
            if name == EMBEDDING and self._padding is not None:
                tensor[self._padding] = 0.0

    def rotary(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._frequencies:
            self._frequencies[device] = self._frequencies[torch.device("cpu")].to(device)
        return rotations(self._frequencies[device], length)


def open_llama(settings: Mapping[str, Any]) -> PretrainedLlama | None:
    """The model of a config.json; None where transformers has to open it. Reads no weights."""
    try:
        if settings.get("model_type") not in OWN_LAYERS or not _is_usual(settings):
            return None
        sizes = _sizes(settings)
        return PretrainedLlama(sizes, _variant(settings), _frequencies(settings, sizes), settings)
    except (_NotOurs, TypeError, ValueError, AttributeError):
        return None


def _is_usual(settings: Mapping[str, Any]) -> bool:
    family = settings["model_type"]
    has_window = family == "mistral" and settings.get("sliding_window", "usual") is not None
    has_window |= family in {"qwen2", "qwen3"} and _flag(settings, "use_sliding_window")
    kinds = settings.get("layer_types") or []
    return (
        all(settings.get(name, values[0]) in values for name, values in _USUAL.items())
        and not has_window
        and not (settings.get("rope_scaling") and settings.get("rope_parameters"))
        and all(kind == "full_attention" for kind in kinds)
    )


def _sizes(settings: Mapping[str, Any]) -> _LlamaSizes:
    hidden, heads = _count(settings, "hidden_size"), _count(settings, "num_attention_heads")
    # Where one of these is missing, each family has a number of its own.
    needed = ("num_key_value_heads", *(("head_dim",) if settings["model_type"] == "qwen3" else ()))
    if any(name not in settings for name in needed):
        raise _NotOurs
    kv_heads, head = (
        _count(settings, "num_key_value_heads", heads),
        _count(settings, "head_dim", hidden // heads),
    )
    if heads % kv_heads or head % 2 or head > _LARGEST_HEAD:
        raise _NotOurs
    return _LlamaSizes(
        vocab_size=_count(settings, "vocab_size"),
        hidden_size=hidden,
        layers=_count(settings, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head,
        ffn_size=_count(settings, "intermediate_size"),
        tie_embeddings=_flag(settings, "tie_word_embeddings"),
        rope_theta=_number(rope_parameters(settings), "rope_theta"),
        norm_eps=_number(settings, "rms_norm_eps"),
    )


def _variant(settings: Mapping[str, Any]) -> Variant:
    match settings["model_type"]:
        case "llama":
            bias = _flag(settings, "attention_bias")
            return Variant(qkv_bias=bias, out_bias=bias, ffn_bias=_flag(settings, "mlp_bias"))
        case "qwen2":
            return Variant(qkv_bias=True)
        case "qwen3":
            bias = _flag(settings, "attention_bias")
            return Variant(qkv_bias=bias, out_bias=bias, head_norms=True)
        case _:
            return Variant()


def _frequencies(settings: Mapping[str, Any], sizes: _LlamaSizes) -> Tensor:
    """Turns per position of each pair, as transformers computes them, to the last bit."""
    rope = rope_parameters(settings)
    if rope.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise _NotOurs
    pairs = torch.arange(0, sizes.head_size, 2, dtype=torch.float32)
    plain = 1.0 / sizes.rope_theta ** (pairs / sizes.head_size)
    match rope["rope_type"]:
        case "default":
            return plain
        case "linear":
            return plain / _number(rope, "factor")
        case "llama3":
            return _llama3(plain, rope)
        case _:
            raise _NotOurs


def _llama3(plain: Tensor, rope: Mapping[str, Any]) -> Tensor:
    """Slow turns are slowed further, fast ones stay, and those between are mixed."""
    factor, positions = _number(rope, "factor"), _number(rope, "original_max_position_embeddings")
    low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
    wavelength = 2 * math.pi / plain
    slowed = torch.where(wavelength > positions / low, plain / factor, plain)
    part = (positions / wavelength - low) / (high - low)
    mixed = (1 - part) * slowed / factor + part * slowed
    between = (wavelength >= positions / high) & (wavelength <= positions / low)
    return torch.where(between, mixed, slowed)


def _as_saved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json as transformers would write it: checkpoints are compared by it."""
    saved = {name: value for name, value in settings.items() if name not in _OLD_NAMES}
    saved["rope_parameters"] = rope_parameters(settings)
    if "use_sliding_window" in saved and not saved["use_sliding_window"]:
        saved["sliding_window"] = None
    return saved


def _count(settings: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    value = settings.get(name)
    value = otherwise if value is None else value
    if type(value) is not int or value < 1:
        raise _NotOurs
    return value


def _number(settings: Mapping[str, Any], name: str) -> float:
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _NotOurs
    return float(value)


def _flag(settings: Mapping[str, Any], name: str) -> bool:
    value = settings.get(name, False)
    if type(value) is not bool:
        raise _NotOurs
    return value
