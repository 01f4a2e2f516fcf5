"""ModelConfig: which model a run trains. A preset with sizes that override it, or a model folder."""

from typing import Literal

from pydantic import Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.plan import limits
from gpubloom.plan.fields import shown
from gpubloom.plan.shapes import PRESETS, ModelShape
from gpubloom.plan.sizes import billions_in, preset_label, preset_shape
from gpubloom.plan.validation import Part

# Bytes and end-of-text: no tokenizer has fewer tokens.
_SMALLEST_VOCABULARY = 257
# A model folder allows far longer rows than most fine-tuning wants.
_FOLDER_CONTEXT_LENGTH = 1_024


def folder_context_length(positions: int | None) -> int:
    """The row length for a model folder that nobody gave one, for a model with so many positions."""
    return min(_FOLDER_CONTEXT_LENGTH, positions or _FOLDER_CONTEXT_LENGTH)


class ModelConfig(Part):
    """A preset with the sizes that override it, or a model folder."""

    preset: str = Field(
        "tiny",
        title="Model",
        description="Preset that sets the sizes of a new model, or a number of parameters such as 130b or "
        "450m; each size can be overridden.",
        json_schema_extra=shown(choices={name: preset_label(name) for name in PRESETS}),
    )
    hidden_size: int | None = Field(
        None,
        ge=2,
        le=limits.MAX_HIDDEN_SIZE,
        title="Hidden size",
        description="Width of the embeddings and of the residual stream.",
    )
    layers: int | None = Field(
        None, ge=1, le=limits.MAX_LAYERS, title="Layers", description="Number of decoder layers."
    )
    heads: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_HEADS,
        title="Attention heads",
        description="Number of attention heads per layer; the hidden size must be a multiple of this number.",
    )
    kv_heads: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_HEADS,
        title="Key-value heads",
        description="Number of key-value heads; the number of attention heads must be a multiple of this "
        "number.",
    )
    ffn_size: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_FFN_SIZE,
        title="Feed-forward size",
        description="Width of the feed-forward networks; if you change the hidden size, the default is 8/3 "
        "of it.",
    )
    context_length: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_CONTEXT_LENGTH,
        title="Max sequence length",
        description="Number of tokens in one training sequence (context length); longer ones need more "
        "memory.",
    )
    tie_embeddings: bool | None = Field(
        None, title="Tied embeddings", description="Input and output embeddings share the same weights."
    )
    rope_theta: float | None = Field(
        None, gt=0, title="RoPE theta", description="Base frequency of the rotary position embeddings."
    )
    norm_eps: float | None = Field(
        None,
        gt=0,
        le=1,
        title="Norm epsilon",
        description="Small number added to the mean square in RMSNorm.",
    )
    path: str | None = Field(
        None,
        min_length=1,
        title="Model folder",
        description="Folder of a model in Hugging Face layout, used instead of a preset.",
    )
    random_weights: bool = Field(
        False,
        title="Initial weights",
        description="Start from the pretrained weights, or from random weights with the sizes in "
        "config.json.",
        json_schema_extra=shown(choices={"false": "Pretrained weights", "true": "Random weights"}),
    )
    rope_scaling: Literal["linear", "dynamic", "yarn"] | None = Field(
        None,
        title="RoPE scaling",
        description="Stretches the rotary positions of the model, so that sequences can be longer than the "
        "positions it was trained with; written into every export.",
        json_schema_extra=shown(
            choices={
                "yarn": ("YaRN", "keeps short distances sharp"),
                "dynamic": ("Dynamic NTK", "changes only longer sequences"),
                "linear": ("Linear", "stretches all distances alike"),
            },
            empty="none",
        ),
    )
    rope_factor: float | None = Field(
        None,
        gt=1,
        le=limits.MAX_ROPE_FACTOR,
        title="RoPE scaling factor",
        description="How many times longer than the model's own positions a sequence can be.",
        json_schema_extra=shown(empty="what the max sequence length needs"),
    )
    architecture: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        title="Architecture",
        description="Name of an architecture from a plug-in; it gets the sizes of this model.",
    )
    options: dict[str, JsonValue] = Field(
        {}, title="Options", description="Additional settings for the plug-in's architecture."
    )

    @field_validator("preset")
    @classmethod
    def _preset_is_known(cls, preset: str) -> str:
        known = preset.lower()
        if known not in PRESETS and billions_in(known) is None:
            raise PydanticCustomError(
                "unknown_preset",
                f"unknown preset {preset!r}; use one of {', '.join(PRESETS)}, or a number of parameters from "
                "1m to 10000b, such as 130b",
            )
        return known

    @model_validator(mode="after")
    def _a_folder_brings_its_own_sizes(self) -> "ModelConfig":
        if self.path is None:
            if self.random_weights:
                raise PydanticCustomError(
                    "random_weights_without_path",
                    "random_weights can be set only with path; a preset always starts with random weights",
                )
            if self.rope_scaling is not None:
                raise PydanticCustomError(
                    "rope_scaling_without_path",
                    "rope_scaling can be set only with path; a new model learns context_length positions",
                )
            return self
        brought = {"path", "random_weights", "context_length", "rope_scaling", "rope_factor"}
        defaults = type(self).model_construct()
        own = [
            name
            for name in type(self).model_fields
            if name not in brought and getattr(self, name) != getattr(defaults, name)
        ]
        if own:
            raise PydanticCustomError(
                "path_brings_sizes", f"the model in path has its own sizes: remove {', '.join(own)}"
            )
        return self

    @model_validator(mode="after")
    def _a_factor_belongs_to_a_scaling(self) -> "ModelConfig":
        if self.rope_factor is not None and self.rope_scaling is None:
            raise PydanticCustomError(
                "rope_factor_without_scaling", "rope_factor can be set only with rope_scaling"
            )
        return self

    @model_validator(mode="after")
    def _options_belong_to_a_plug_in(self) -> "ModelConfig":
        if self.options and self.architecture is None:
            raise PydanticCustomError(
                "options_without_architecture",
                "options can be set only with a plug-in: set architecture to its name",
            )
        if self.tie_embeddings and self.architecture is not None:
            raise PydanticCustomError(
                "tie_embeddings_with_plugin",
                "an architecture from a plug-in cannot tie its embeddings: remove tie_embeddings",
            )
        return self

    @property
    def tokens_per_row(self) -> int:
        """How long a row of training tokens is."""
        if self.path is not None:
            return self.context_length or folder_context_length(None)
        return self.shape(vocab_size=_SMALLEST_VOCABULARY).context_length

    def shape(self, vocab_size: int) -> ModelShape:
        """The full shape of a preset, once the tokenizer has said how many tokens there are."""
        assert self.path is None, "a model folder has its shape in its config.json"
        base = preset_shape(self.preset, vocab_size)
        sizes = set(ModelShape.__dataclass_fields__)
        wanted = self.model_dump(include=sizes, exclude_none=True)
        if "heads" in wanted and "kv_heads" not in wanted:
            wanted["kv_heads"] = wanted["heads"]
        if "hidden_size" in wanted and "ffn_size" not in wanted:
            # The usual 8/3 of a SwiGLU network, rounded up to what matrix kernels like.
            wanted["ffn_size"] = -(-wanted["hidden_size"] * 8 // 3 // 16) * 16
        if self.architecture is not None:
            # A plug-in's head is a part of its own.
            wanted["tie_embeddings"] = False
        fields = {name: wanted.get(name, getattr(base, name)) for name in ModelShape.__dataclass_fields__}
        return ModelShape(**{**fields, "vocab_size": vocab_size})
