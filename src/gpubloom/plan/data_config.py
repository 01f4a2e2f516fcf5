"""What is trained on: the part of a TrainConfig about text, examples and tokens."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from gpubloom.plan import limits
from gpubloom.plan.parts import Fraction, Part


class TokenizerConfig(Part):
    """How text becomes tokens: bytes, BPE trained on the run's own text, or a tokenizer.json."""

    kind: Literal["bytes", "bpe", "file"] = Field(
        "bytes", description="With the weights of model.path the default is its own tokenizer.json."
    )
    vocab_size: int = Field(4_096, ge=258, le=limits.MAX_VOCAB_SIZE, description="Size of a trained BPE.")
    path: str | None = Field(None, description="A tokenizer.json, for kind 'file'.")

    @model_validator(mode="after")
    def _file_has_a_path(self) -> "TokenizerConfig":
        if (self.kind == "file") != (self.path is not None):
            raise ValueError("tokenizer.path belongs to kind 'file', and kind 'file' needs it")
        return self


class DataConfig(Part):
    """What is trained on: text (a file, a folder, a glob, .bin token files) or one file of examples."""

    kind: Literal["text", "examples"] = Field(
        "text", description="examples: train_path is one file of rows, such as chats in .jsonl or .parquet."
    )
    train_path: str | None = Field(None, min_length=1)
    eval_path: str | None = Field(None, min_length=1)
    format: Literal["text", "prompt_completion", "alpaca", "sharegpt", "messages"] | None = Field(
        None, description="What a row of examples is; found out unless said."
    )
    columns: dict[str, str] = Field(
        {}, description="Which column is which field of the format, such as prompt: question."
    )
    encoding: str | None = Field(
        None, min_length=1, max_length=40, description="Of a file of examples; found out unless said."
    )
    train_on: Literal["completions", "everything"] = Field(
        "completions", description="Of examples: only what the model should write, or prompts as well."
    )
    packing: bool = Field(True, description="Several examples share a row; none sees another.")
    too_long: Literal["cut", "skip"] = Field(
        "cut", description="Examples that are longer than a row lose their end, or are left out."
    )
    eval_fraction: Fraction = Field(0.05, description="Kept for evaluation when there is no eval_path.")
    token_dtype: Literal["uint16", "uint32"] = Field(
        "uint16", description="Little-endian ids in a .bin file."
    )
    tokenizer: TokenizerConfig = TokenizerConfig()

    @field_validator("eval_fraction")
    @classmethod
    def _something_is_left_to_train_on(cls, fraction: float) -> float:
        if fraction > 0.5:
            raise ValueError("at most half of the text can be kept for evaluation")
        return fraction

    @model_validator(mode="after")
    def _examples_have_their_own_settings(self) -> "DataConfig":
        if self.kind == "examples":
            return self
        defaults = type(self).model_construct()
        of_examples = ("format", "columns", "encoding", "train_on", "packing", "too_long")
        said = [name for name in of_examples if getattr(self, name) != getattr(defaults, name)]
        if said:
            raise ValueError(f"{', '.join(said)} only mean something with kind 'examples'; the kind is text")
        return self
