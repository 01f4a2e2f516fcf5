"""The shape of a Llama-architecture model, its named presets, and what follows from shape alone.

Pure arithmetic: nothing here knows a tensor, a device or a file.
"""

from dataclasses import asdict, dataclass, replace

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
            raise ValueError(
                f"model.hidden_size {self.hidden_size} cannot be split over {self.heads} attention heads: "
                "choose a multiple of model.heads."
            )
        if self.head_size % 2:
            raise ValueError(
                f"model.hidden_size / model.heads is {self.head_size}; rotary positions need an even number."
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"model.heads {self.heads} cannot share {self.kv_heads} key-value heads: "
                "choose a multiple of model.kv_heads."
            )
        if self.parameters > MAX_PARAMETERS:
            raise ValueError(
                f"The model would have {self.parameters:,} parameters, "
                f"above the limit of {MAX_PARAMETERS:,} (MAX_PARAMETERS)."
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
