"""DataConfig: what a run trains on, how rows are read and rendered, and how text is split into tokens."""

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.plan import limits
from gpubloom.plan.fields import shown
from gpubloom.plan.validation import Part


class TokenizerConfig(Part):
    """How text is split into tokens: bytes, BPE trained on the run's own text, or a tokenizer.json."""

    kind: Literal["bytes", "bpe", "file"] = Field(
        "bytes",
        title="Tokenizer",
        description="How text is split into tokens; a pretrained model uses its own tokenizer.json by "
        "default.",
        json_schema_extra=shown(
            choices={"bytes": "Bytes", "bpe": "BPE, trained on the data", "file": "tokenizer.json file"}
        ),
    )
    vocab_size: int = Field(
        4_096,
        ge=258,
        le=limits.MAX_VOCAB_SIZE,
        title="Vocabulary size",
        description="Number of tokens in the vocabulary of the BPE tokenizer.",
    )
    path: str | None = Field(
        None, title="Tokenizer file", description="Path of a tokenizer.json file; required with kind file."
    )

    @model_validator(mode="after")
    def _file_has_a_path(self) -> "TokenizerConfig":
        if (self.kind == "file") != (self.path is not None):
            raise PydanticCustomError(
                "tokenizer_path_mismatch", "set tokenizer.path and tokenizer.kind 'file' together, or neither"
            )
        return self


ExampleFormat = Literal["text", "prompt_completion", "alpaca", "sharegpt", "messages", "oasst"]


class MixedDataset(Part):
    """One more file of examples that is trained together with train_path."""

    path: str = Field(min_length=1, title="File", description="A file of examples.")
    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        title="Dataset name",
        description="What the file is called in messages about it; its file name unless it is set.",
    )
    weight: float = Field(
        1.0,
        gt=0,
        le=limits.MAX_DATASET_WEIGHT,
        title="Weight",
        description="How often an epoch trains each example of this file; 0.5 trains half of them.",
    )
    format: ExampleFormat | None = Field(
        None, title="Format", description="Format of the file; detected unless it is set."
    )
    columns: dict[str, str] = Field(
        {}, title="Columns", description="Which column of the file holds each field of the format."
    )
    encoding: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        title="Encoding",
        description="Text encoding of the file; detected unless it is set.",
    )


class DataConfig(Part):
    """Training data: text (a file, a folder, a glob, .bin token files) or one file of examples."""

    kind: Literal["text", "examples"] = Field(
        "text",
        title="Data kind",
        description="text: plain text or tokens; examples: one file of rows, such as chats in .jsonl or "
        ".parquet.",
    )
    train_path: str | None = Field(
        None,
        min_length=1,
        title="Training data",
        description="With kind text: a file, a folder, a glob pattern or .bin token files. With kind "
        "examples: one file. Also an https://, hf://, s3:// or gs:// address.",
    )
    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        title="Dataset name",
        description="What train_path is called in messages about it; its file name unless it is set.",
    )
    eval_path: str | None = Field(
        None,
        min_length=1,
        title="Evaluation data",
        description="Data for evaluation only; without it, eval_fraction of the training data is held out.",
    )
    eval_name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        title="Evaluation dataset name",
        description="What eval_path is called in messages about it; its file name unless it is set.",
    )
    eval_format: ExampleFormat | None = Field(
        None, title="Evaluation format", description="Format of eval_path, where it differs from format."
    )
    eval_columns: dict[str, str] = Field(
        {}, title="Evaluation columns", description="Columns of eval_path, where they differ from columns."
    )
    eval_encoding: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        title="Evaluation encoding",
        description="Text encoding of eval_path, where it differs from encoding.",
    )
    format: ExampleFormat | None = Field(
        None, title="Format", description="Format of the examples; detected unless it is set."
    )
    columns: dict[str, str] = Field(
        {},
        title="Columns",
        description="Which column holds each field of the format, such as prompt: question; a path such as "
        "instances[0].output leads into lists and objects.",
    )
    encoding: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        title="Encoding",
        description="Text encoding of the file of examples; detected unless it is set.",
    )
    weight: float = Field(
        1.0,
        gt=0,
        le=limits.MAX_DATASET_WEIGHT,
        title="Weight",
        description="How often an epoch trains each example of train_path; 0.5 trains half of them. For use "
        "with mix.",
    )
    mix: list[MixedDataset] = Field(
        [],
        max_length=limits.MAX_MIXED_DATASETS,
        title="Mixed datasets",
        description="More files of examples to train on, each with a weight. The eval split is taken from "
        "all of them.",
    )
    chat_template: Literal["model", "chatml", "alpaca", "plain"] = Field(
        "model",
        title="Chat template",
        description="How conversations are written; every export of the run gets the template that it was "
        "trained with.",
        json_schema_extra=shown(
            choices={
                "model": ("The model's own", "a plain one if it has none"),
                "chatml": ("ChatML", "<|im_start|>role … <|im_end|>"),
                "alpaca": ("Alpaca", "### Instruction: … ### Response: …"),
                "plain": ("Plain", "user: … assistant: …"),
            }
        ),
    )
    train_on: Literal["completions", "everything"] = Field(
        "completions",
        title="Train on",
        description="Tokens that count in the loss: the completions only, or the prompts as well.",
        json_schema_extra=shown(
            choices={"completions": "Completions only", "everything": "Prompts and completions"}
        ),
    )
    packing: bool = Field(
        True,
        title="Packing",
        description="Packs several short examples into one sequence; attention does not cross examples.",
    )
    too_long: Literal["cut", "skip"] = Field(
        "cut",
        title="Truncation",
        description="What happens to an example that is longer than the max sequence length.",
        json_schema_extra=shown(choices={"cut": "Truncate the end", "skip": "Skip the example"}),
    )
    eval_fraction: float = Field(
        0.05,
        ge=0,
        le=limits.MAX_EVAL_FRACTION,
        title="Eval split fraction",
        description="Fraction of the training data that is held out for evaluation when there is no "
        "evaluation dataset; identical examples stay in the same split.",
    )
    token_dtype: Literal["uint16", "uint32"] = Field(
        "uint16",
        title="Token data type",
        description="Data type of the little-endian token ids in .bin files.",
    )
    tokenizer: TokenizerConfig = TokenizerConfig()

    @property
    def template_name(self) -> str | None:
        """The template that was chosen in place of the model's own."""
        return None if self.chat_template == "model" else self.chat_template

    @model_validator(mode="after")
    def _examples_have_their_own_settings(self) -> "DataConfig":
        if self.kind == "examples":
            return self
        defaults = type(self).model_construct()
        of_examples = (
            *("name", "format", "columns", "encoding"),
            *("eval_name", "eval_format", "eval_columns", "eval_encoding"),
            *("chat_template", "train_on", "packing", "too_long", "weight", "mix"),
        )
        said = [name for name in of_examples if getattr(self, name) != getattr(defaults, name)]
        if said:
            raise PydanticCustomError(
                "needs_kind_examples",
                f"{', '.join(said)} can be set only with kind 'examples'; the kind is 'text'",
            )
        return self
