"""The shape of a Llama-architecture model, its presets, and the sizes of well-known models by name.

Pure arithmetic: nothing here knows a tensor, a device or a file. A well-known model is a config.json as
Hugging Face writes it, so that `model.random_weights` can train one, too.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from gpubloom.errors import InputError
from gpubloom.plan.decoder import DecoderShape, LayerShape, Linear
from gpubloom.plan.limits import MAX_PARAMETERS


@dataclass(frozen=True)
class ModelShape:
    """Everything that decides which tensors a model has."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    ffn_size: int
    context_length: int
    tie_embeddings: bool = True
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.hidden_size % self.heads:
            raise InputError(
                "hidden_size_not_divisible",
                f"model.hidden_size {self.hidden_size} is not a multiple of model.heads {self.heads}: "
                "change one of them.",
            )
        if self.head_size % 2:
            raise InputError(
                "odd_head_size",
                f"model.hidden_size / model.heads is {self.head_size}; rotary position embeddings need an "
                "even number.",
            )
        if self.heads % self.kv_heads:
            raise InputError(
                "kv_heads_not_divisible",
                f"model.heads {self.heads} is not a multiple of model.kv_heads {self.kv_heads}: "
                "change one of them.",
            )
        if self.parameters > MAX_PARAMETERS:
            raise InputError(
                "model_too_large",
                f"The model would have {self.parameters:,} parameters, "
                f"above the limit of {MAX_PARAMETERS:,} (MAX_PARAMETERS).",
            )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of one decoder layer: attention, feed-forward, two norms."""
        kv_size = self.kv_heads * self.head_size
        attention = 2 * self.hidden_size * self.hidden_size + 2 * self.hidden_size * kv_size
        return attention + 3 * self.hidden_size * self.ffn_size + 2 * self.hidden_size

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        head = self.hidden_size + (0 if self.tie_embeddings else self.embedding_parameters)
        return self.embedding_parameters + self.layers * self.layer_parameters + head

    @property
    def flops_per_token(self) -> float:
        """Forward and backward: 6 per weight that multiplies, plus the causal half of attention."""
        multiplied = self.layers * self.layer_parameters + self.embedding_parameters
        attention = 6 * self.layers * self.hidden_size * self.context_length
        return float(6 * multiplied + attention)

    def decoder(self) -> DecoderShape:
        """The same as the planner sees it."""
        kv_size, hidden, ffn = self.kv_heads * self.head_size, self.hidden_size, self.ffn_size
        layer = LayerShape(
            linears=(
                Linear("q_proj", hidden, hidden),
                Linear("k_proj", hidden, kv_size),
                Linear("v_proj", hidden, kv_size),
                Linear("o_proj", hidden, hidden),
                Linear("gate_proj", hidden, ffn),
                Linear("up_proj", hidden, ffn),
                Linear("down_proj", ffn, hidden),
            ),
            others=(hidden, hidden),
            query_size=hidden,
            kv_size=kv_size,
            ffn_size=ffn,
        )
        return DecoderShape(
            family="llama",
            vocab_size=self.vocab_size,
            hidden_size=hidden,
            layers=(layer,) * self.layers,
            embedding=(self.embedding_parameters,),
            head_others=(hidden,),
            tied=self.tie_embeddings,
            max_positions=self.context_length,
        )

    def differences(self, other: "ModelShape") -> list[str]:
        """The fields in which two shapes differ, worded for an error message."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name} {mine[name]} instead of {theirs[name]}" for name in mine if mine[name] != theirs[name]
        ]


def _preset(
    hidden_size: int, layers: int, heads: int, kv_heads: int, ffn_size: int, context_length: int
) -> ModelShape:
    return ModelShape(
        vocab_size=257,
        hidden_size=hidden_size,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        ffn_size=ffn_size,
        context_length=context_length,
    )


# The vocabulary belongs to the tokenizer, not to the preset; 257 (bytes and end-of-text) stands in for it.
PRESETS: dict[str, ModelShape] = {
    "nano": _preset(64, 2, 4, 2, 176, 64),
    "tiny": _preset(128, 4, 4, 2, 352, 128),
    "small": _preset(384, 6, 6, 6, 1_024, 256),
    "125m": _preset(768, 12, 12, 12, 2_048, 1_024),
    "350m": _preset(1_024, 24, 16, 16, 2_816, 2_048),
    "1b": replace(_preset(2_048, 16, 32, 8, 8_192, 4_096), rope_theta=500_000.0),
    "3b": replace(_preset(3_072, 28, 24, 8, 8_192, 4_096), rope_theta=500_000.0),
    "8b": replace(_preset(4_096, 32, 32, 8, 14_336, 4_096), rope_theta=500_000.0, tie_embeddings=False),
    "70b": replace(_preset(8_192, 80, 64, 8, 28_672, 4_096), rope_theta=500_000.0, tie_embeddings=False),
}


_ROPE_THETA = {"qwen2": 1_000_000.0, "llama": 500_000.0}


def model_config(
    family: str, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, *, tied: bool
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "rope_theta": _ROPE_THETA[family],
        "tie_word_embeddings": tied,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": model_config("qwen2", 896, 24, 14, 2, 4_864, 151_936, tied=True),
    "qwen2.5-1.5b": model_config("qwen2", 1_536, 28, 12, 2, 8_960, 151_936, tied=True),
    "qwen2.5-3b": model_config("qwen2", 2_048, 36, 16, 2, 11_008, 151_936, tied=True),
    "qwen2.5-7b": model_config("qwen2", 3_584, 28, 28, 4, 18_944, 152_064, tied=False),
    "llama3-8b": model_config("llama", 4_096, 32, 32, 8, 14_336, 128_256, tied=False),
    "qwen2.5-14b": model_config("qwen2", 5_120, 48, 40, 8, 13_824, 152_064, tied=False),
    "qwen2.5-32b": model_config("qwen2", 5_120, 64, 40, 8, 27_648, 152_064, tied=False),
    "llama3-70b": model_config("llama", 8_192, 80, 64, 8, 28_672, 128_256, tied=False),
    "qwen2.5-72b": model_config("qwen2", 8_192, 80, 64, 8, 29_568, 152_064, tied=False),
}
