"""TrainConfig: what a person asks for, validated once for the command line, the server and the engine.

Field names are snake_case; camelCase is accepted on input. Unknown fields are rejected. A config never says
where tensors live or how fast they move: that is the plan's answer.

Forms are made from the JSON schema of these fields: title, description, limits, default, choices.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.errors import InputError
from gpubloom.plan import limits
from gpubloom.plan.shapes import PRESETS, ModelShape
from gpubloom.plan.sizes import billions_in, preset_label, preset_shape
from gpubloom.plan.validation import Fraction, Part

# Bytes and end-of-text: no tokenizer has fewer tokens.
_SMALLEST_VOCABULARY = 257
# A model folder allows far longer rows than most fine-tuning wants.
_FOLDER_CONTEXT_LENGTH = 1_024

# What a run starts from decides some defaults; of the situations that apply, the first in this order.
Situation = Literal["adapters", "pretrained", "new_model"]
# New weights take large steps, pretrained ones small steps; adapters lie in between.
_LEARNING_RATES: Mapping[Situation, float] = {"adapters": 2e-4, "pretrained": 2e-5, "new_model": 1e-3}
# Pretrained weights need few passes over the data, and small steps need fewer rows.
_EPOCHS: Mapping[Situation, int] = {"pretrained": 3, "new_model": 10}
_BATCH_SIZES: Mapping[Situation, int] = {"pretrained": 8, "new_model": 32}
# Decay pulls weights towards zero, which is where new ones belong and pretrained ones do not.
_WEIGHT_DECAYS: Mapping[Situation, float] = {"adapters": 0.0, "pretrained": 0.0, "new_model": 0.1}
# The long average suits the small and noisy gradients of tuning; pretraining reacts faster.
_BETA2S: Mapping[Situation, float] = {"adapters": 0.999, "pretrained": 0.999, "new_model": 0.95}
_WARMUP_FRACTION = 0.03

_Value = TypeVar("_Value", int, float)


def shown(
    *,
    choices: Mapping[str, str | tuple[str, str]] | None = None,
    defaults: Mapping[Situation, float] | None = None,
    empty: str | None = None,
) -> dict[str, Any]:
    """What a form needs besides JSON schema, to be put into it.

    `choices`: label, or label and note, of each value, in their order. `defaults`: by situation, where the
    default depends on it. `empty`: what no value means.
    """
    extra: dict[str, Any] = {}
    if choices is not None:
        named = {value: (text, None) if isinstance(text, str) else text for value, text in choices.items()}
        # A list: the keys of a schema are sorted.
        extra["choices"] = [
            {"value": value, "label": label} | ({} if note is None else {"note": note})
            for value, (label, note) in named.items()
        ]
    if defaults is not None:
        extra["defaults"] = dict(defaults)
    if empty is not None:
        extra["empty"] = empty
    return extra


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
        "examples: one file.",
    )
    eval_path: str | None = Field(
        None,
        min_length=1,
        title="Evaluation data",
        description="Data for evaluation only; without it, eval_fraction of the training data is held out.",
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
        description="Fraction of the training data that is held out for evaluation when eval_path is not "
        "set; identical examples stay in the same split.",
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
            *("format", "columns", "encoding", "eval_format", "eval_columns", "eval_encoding"),
            *("chat_template", "train_on", "packing", "too_long"),
        )
        said = [name for name in of_examples if getattr(self, name) != getattr(defaults, name)]
        if said:
            raise PydanticCustomError(
                "needs_kind_examples",
                f"{', '.join(said)} can be set only with kind 'examples'; the kind is 'text'",
            )
        return self


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
            return self
        brought = {"path", "random_weights", "context_length"}
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


OptimizerName = Literal["adamw", "muon", "adafactor"]
OptimizerState = Literal["fp32", "bf16", "8bit"]


class OptimizerConfig(Part):
    """The optimizer and its settings. Weight decay applies to matrices, not to norms."""

    name: OptimizerName = Field(
        "adamw",
        title="Optimizer",
        description="AdamW; Muon for the matrices of decoder layers with AdamW for the rest; or Adafactor, "
        "which has almost no optimizer state. All use the same learning rates.",
        json_schema_extra=shown(
            choices={
                "adamw": ("AdamW", "two moments per weight"),
                "muon": ("Muon", "one moment per weight of a matrix"),
                "adafactor": ("Adafactor", "one moment per row and column"),
            }
        ),
    )
    state: OptimizerState = Field(
        "fp32",
        title="Optimizer state",
        description="Number format of AdamW's two moments; smaller ones save memory and are rounded. "
        "Master weights stay fp32.",
        json_schema_extra=shown(
            choices={
                "fp32": ("fp32", "8 bytes per weight"),
                "bf16": ("bf16", "4 bytes per weight"),
                "8bit": ("8-bit, block-wise", "2 bytes per weight"),
            }
        ),
    )
    beta1: float = Field(
        0.9, ge=0, lt=1, title="Beta 1", description="Decay rate of the running mean of the gradients."
    )
    beta2: float = Field(
        _BETA2S["new_model"],
        ge=0,
        lt=1,
        title="Beta 2",
        description="Decay rate of the running mean of the squared gradients.",
        json_schema_extra=shown(defaults=_BETA2S),
    )
    eps: float = Field(
        1e-8,
        gt=0,
        title="Epsilon",
        description="Small number added to the denominator of the update, for numerical stability.",
    )
    momentum: float = Field(
        0.95,
        ge=0,
        lt=1,
        title="Muon momentum",
        description="Decay rate of Muon's running mean of the gradients.",
    )
    weight_decay: float = Field(
        _WEIGHT_DECAYS["new_model"],
        ge=0,
        le=limits.MAX_WEIGHT_DECAY,
        title="Weight decay",
        description="Decoupled weight decay of weight matrices; norms do not decay.",
        json_schema_extra=shown(defaults=_WEIGHT_DECAYS),
    )
    clip_norm: float = Field(
        1.0,
        ge=0,
        le=limits.MAX_CLIP_NORM,
        title="Max gradient norm",
        description="Gradients are clipped to this global norm; 0 turns gradient clipping off.",
    )

    @field_validator("name", mode="before")
    @classmethod
    def _any_spelling(cls, name: object) -> object:
        return name.lower() if isinstance(name, str) else name

    @model_validator(mode="after")
    def _settings_belong_to_the_optimizer(self) -> "OptimizerConfig":
        unused = {"adamw": ("momentum",), "muon": (), "adafactor": ("beta1", "beta2", "eps", "momentum")}
        defaults = type(self).model_construct()
        said = [name for name in unused[self.name] if getattr(self, name) != getattr(defaults, name)]
        if said:
            raise PydanticCustomError(
                "setting_of_other_optimizer",
                f"{self.name} does not use {', '.join(said)}: remove {'it' if len(said) == 1 else 'them'}, "
                "or choose another optimizer",
            )
        if self.state != "fp32" and self.name != "adamw":
            raise PydanticCustomError(
                "state_needs_adamw",
                f"optimizer.state {self.state} is for adamw; {self.name} keeps its state in fp32",
            )
        return self


class ScheduleConfig(Part):
    """Linear warmup to the peak learning rate, then cosine decay to a fraction of it."""

    warmup_steps: int | None = Field(
        None,
        ge=0,
        le=limits.MAX_STEPS,
        title="Warmup steps",
        description="Steps until the learning rate reaches its peak; overrides the warmup ratio.",
        json_schema_extra=shown(empty=f"{_WARMUP_FRACTION * 100:g} % of steps"),
    )
    warmup_fraction: Fraction = Field(
        _WARMUP_FRACTION,
        title="Warmup ratio",
        description="Fraction of all steps in which the learning rate rises to its peak.",
    )
    final_fraction: Fraction = Field(
        0.1,
        title="Final learning rate ratio",
        description="Learning rate at the last step, as a fraction of the peak learning rate.",
    )


class EvalConfig(Part):
    """When to evaluate in addition to the end of every epoch and of the run."""

    every_steps: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_STEPS,
        title="Evaluate every … steps",
        description="Adds evaluations to those at the end of every epoch and of the run.",
        json_schema_extra=shown(empty="end of epoch"),
    )
    max_batches: int = Field(
        20,
        ge=1,
        le=limits.MAX_STEPS,
        title="Batches per evaluation",
        description="Maximum number of held-out batches that one evaluation uses.",
    )


class CheckpointConfig(Part):
    """When to save checkpoints, and how many to keep. The best evaluated checkpoint is always kept."""

    directory: str | None = Field(
        None,
        min_length=1,
        title="Checkpoint folder",
        description="Folder for the checkpoints; the default is checkpoints/ in the run directory.",
    )
    every_epochs: int = Field(
        1, ge=0, le=limits.MAX_EPOCHS, title="Save every … epochs", description="0 turns off saving by epoch."
    )
    every_steps: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_STEPS,
        title="Save every … steps",
        description="Saves these checkpoints in addition to those saved by epoch.",
        json_schema_extra=shown(empty="only by epoch"),
    )
    keep_last: int = Field(
        2,
        ge=1,
        le=1_000_000,
        title="Checkpoints to keep",
        description="Number of newest checkpoints to keep; the checkpoint with the best evaluation is always "
        "kept.",
    )


class MemoryConfig(Part):
    """Where tensors may be stored. The choice changes the speed, not the result."""

    mode: Literal["auto", "resident", "stream"] = Field(
        "auto",
        title="Model placement",
        description="Keeps all layers in GPU memory, or offloads decoder layers to host memory; automatic "
        "takes the fastest placement that fits. The placement does not change the training result.",
        json_schema_extra=shown(
            choices={"auto": "Automatic", "resident": "All in GPU memory", "stream": "Layers in host memory"}
        ),
    )
    gpu_budget_gb: float | None = Field(
        None,
        gt=0,
        title="GPU memory limit (GB)",
        description="The run uses at most this much GPU memory (1 GB = 10^9 bytes); set it to leave memory "
        "for other programs.",
        json_schema_extra=shown(empty="all available"),
    )
    host_budget_gb: float | None = Field(
        None,
        gt=0,
        title="Host memory limit (GB)",
        description="The run uses at most this much host memory (1 GB = 10^9 bytes); set it to leave memory "
        "for other programs.",
        json_schema_extra=shown(empty="all available"),
    )


class LoraConfig(Part):
    """Low-rank adapters on frozen weights, for method lora and qlora."""

    rank: int = Field(
        16,
        ge=1,
        le=limits.MAX_LORA_RANK,
        title="LoRA rank",
        description="Rank of the adapters; a higher rank can learn more and needs more memory.",
    )
    alpha: float = Field(
        32.0, gt=0, title="LoRA alpha", description="Adapter output is scaled by alpha / rank."
    )
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
        "all-linear",
        title="Target modules",
        description="Names of the linear layers that get adapters, such as q_proj, v_proj; all-linear means "
        "all linear layers in the decoder layers.",
    )
    dropout: float = Field(
        0.0,
        ge=0,
        le=0.9,
        title="LoRA dropout",
        description="Fraction of adapter inputs dropped in each step; reduces overfitting on small datasets.",
    )

    @field_validator("targets")
    @classmethod
    def _something_is_adapted(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not targets or not all(targets):
            raise PydanticCustomError("no_lora_targets", "name at least one linear layer, or 'all-linear'")
        return targets


class TrainConfig(Part):
    """The settings of one training run."""

    version: Literal[1] = 1
    name: str = Field("train", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", title="Run name")
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        title="Seed",
        description="Random seed for initial weights and data order; the same seed repeats the run.",
    )
    epochs: int = Field(
        _EPOCHS["new_model"],
        ge=1,
        le=limits.MAX_EPOCHS,
        title="Epochs",
        description="Number of passes over the training data.",
        json_schema_extra=shown(defaults=_EPOCHS),
    )
    max_steps: int | None = Field(
        None,
        ge=1,
        le=limits.MAX_STEPS,
        title="Max steps",
        description="Stops the run after this many steps, even if epochs remain.",
        json_schema_extra=shown(empty="no limit"),
    )
    batch_size: int = Field(
        _BATCH_SIZES["new_model"],
        ge=1,
        le=limits.MAX_BATCH_SIZE,
        title="Batch size",
        description="Sequences per process in one micro-batch; lower it if memory is short.",
        json_schema_extra=shown(defaults=_BATCH_SIZES),
    )
    processes: Annotated[int, Field(ge=1, le=limits.MAX_PROCESSES)] | Literal["auto"] | None = Field(
        None,
        title="Training processes",
        description="Number of data-parallel processes: each gets its own batch and one GPU, or a share of "
        "the CPU cores. auto: on a CPU, the number that is measured as fastest; these processes share one "
        "batch.",
        json_schema_extra=shown(empty="one per GPU"),
    )
    executor: Literal["auto", "block", "sharded"] = Field(
        "auto",
        title="Executor",
        description="block: every process holds the whole model; sharded: the model is split across the "
        "processes; auto: sharded only if the whole model does not fit.",
    )
    cluster: Literal["ray"] | None = Field(
        None,
        title="Cluster",
        description="Runs the processes on the nodes of this cluster instead of on this machine; every node "
        "must have access to the run directory and the data.",
    )
    callbacks: list[str] = Field(
        [], max_length=20, title="Callbacks", description="Names of plug-ins that are called during training."
    )
    accumulation: int = Field(
        1,
        ge=1,
        le=limits.MAX_ACCUMULATION,
        title="Gradient accumulation steps",
        description="Number of micro-batches whose gradients are added up for one optimizer step.",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=limits.MAX_LEARNING_RATE,
        title="Learning rate",
        description="Peak learning rate of the schedule; lower it if the loss diverges.",
        json_schema_extra=shown(defaults=_LEARNING_RATES),
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
        title="Device",
        description="Device to train on: auto, cpu, cuda or cuda:1; auto uses a GPU if there is one.",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        title="Precision",
        description="Number format of the computation; trainable weights also keep an fp32 master copy.",
        json_schema_extra=shown(
            choices={"auto": "Automatic", "bf16": "bf16", "fp16": "fp16, with loss scaling", "fp32": "fp32"}
        ),
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto",
        title="Compile layers",
        description="Compiles the layers, which takes about a minute and makes steps faster; automatic "
        "compiles only long runs on GPUs.",
        json_schema_extra=shown(choices={"auto": "Automatic", "on": "Yes", "off": "No"}),
    )
    memory: MemoryConfig = MemoryConfig()
    method: Literal["full", "lora", "qlora"] = Field(
        "full",
        title="Method",
        description="Trains all weights, or only small adapters on frozen weights (in 4 bits for QLoRA).",
        json_schema_extra=shown(
            choices={
                "full": ("Full", "all weights are trained"),
                "lora": ("LoRA", "adapters on frozen weights"),
                "qlora": ("QLoRA", "adapters on 4-bit weights"),
            }
        ),
    )
    lora: LoraConfig = LoraConfig()
    backend: Literal["engine", "trl", "unsloth"] = Field(
        "engine",
        title="Training backend",
        description="Library that runs the training: GPU Bloom's engine, TRL, or TRL with Unsloth's kernels.",
        json_schema_extra=shown(choices={"engine": "GPU Bloom", "trl": "TRL", "unsloth": "TRL with Unsloth"}),
    )
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer_by_name(cls, optimizer: object) -> object:
        return {"name": optimizer} if isinstance(optimizer, str) else optimizer

    @field_validator("processes", mode="before")
    @classmethod
    def _processes_are_a_number_or_auto(cls, processes: object) -> object:
        number = int(processes) if isinstance(processes, str) and processes.isdecimal() else processes
        if number in (None, "auto") or (
            isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= limits.MAX_PROCESSES
        ):
            return number
        raise PydanticCustomError(
            "invalid_processes", f"must be a number from 1 to {limits.MAX_PROCESSES:,}, or auto"
        )

    @field_validator("memory", mode="before")
    @classmethod
    def _memory_by_mode(cls, memory: object) -> object:
        return {"mode": memory} if isinstance(memory, str) else memory

    @model_validator(mode="after")
    def _adapters_belong_to_their_methods(self) -> "TrainConfig":
        if self.method == "full" and self.lora != LoraConfig():
            raise PydanticCustomError(
                "lora_without_adapters",
                "lora settings can be set only with method lora or qlora; the method is full",
            )
        return self

    @model_validator(mode="after")
    def _defaults_suit_the_situation(self) -> "TrainConfig":
        for name, defaults in (("epochs", _EPOCHS), ("batch_size", _BATCH_SIZES)):
            if name not in self.model_fields_set:
                # Filled in like a default, so that it still counts as not said.
                object.__setattr__(self, name, self._default(defaults))
        optimizer = self.optimizer.model_copy()
        for name, values in (("weight_decay", _WEIGHT_DECAYS), ("beta2", _BETA2S)):
            # Adafactor has no second moment of its own, and a config must not say what it does not use.
            if name not in optimizer.model_fields_set and (name, optimizer.name) != ("beta2", "adafactor"):
                object.__setattr__(optimizer, name, self._default(values))
        object.__setattr__(self, "optimizer", optimizer)
        return self

    @model_validator(mode="after")
    def _learned_weights_keep_their_tokenizer(self) -> "TrainConfig":
        """Trained weights need their own tokenizer: the default is the tokenizer of the model folder."""
        folder, tokenizer = self.model.path, self.data.tokenizer
        belongs = not self.model.random_weights or self.data.kind == "examples"
        if folder is not None and belongs and "kind" not in tokenizer.model_fields_set:
            own = TokenizerConfig(kind="file", path=str(Path(folder) / "tokenizer.json"))
            data = self.data.model_copy()
            # Filled in like a default, so that it still counts as not said.
            object.__setattr__(data, "tokenizer", own)
            object.__setattr__(self, "data", data)
        return self

    @model_validator(mode="after")
    def _examples_have_a_tokenizer(self) -> "TrainConfig":
        # Runs after the folder's own tokenizer was taken.
        if self.data.kind == "examples" and self.data.tokenizer.kind != "file":
            raise PydanticCustomError(
                "examples_need_tokenizer",
                "examples need a tokenizer and a chat template: set model.path to a model folder, or set "
                "data.tokenizer.kind to file and data.tokenizer.path to a tokenizer.json",
            )
        return self

    @model_validator(mode="after")
    def _other_backends_tune_learned_models(self) -> "TrainConfig":
        if self.backend != "engine" and not self.has_learned_weights:
            raise PydanticCustomError(
                "backend_needs_model",
                f"backend {self.backend} requires pretrained weights: set model.path to a model folder, or "
                "use backend engine",
            )
        return self

    @model_validator(mode="after")
    def _other_backends_have_adamw(self) -> "TrainConfig":
        optimizer = self.optimizer
        if self.backend != "engine" and (optimizer.name, optimizer.state) != ("adamw", "fp32"):
            raise PydanticCustomError(
                "backend_optimizer",
                f"backend {self.backend} trains with adamw and fp32 state only: remove optimizer.name and "
                "optimizer.state, or use backend engine",
            )
        if self.method != "full" and optimizer.state != "fp32":
            raise PydanticCustomError(
                "state_needs_full",
                f"optimizer.state {optimizer.state} is for method full: remove it",
            )
        return self

    @model_validator(mode="after")
    def _several_processes_belong_to_the_engine(self) -> "TrainConfig":
        if self.processes not in {None, 1} and self.backend != "engine":
            raise PydanticCustomError(
                "backend_single_process",
                f"backend {self.backend} trains in one process: remove processes, or use backend engine",
            )
        if self.cluster is not None and not isinstance(self.processes, int):
            raise PydanticCustomError(
                "cluster_needs_processes",
                f"a run on a {self.cluster} cluster needs a number of processes: set processes",
            )
        return self

    @model_validator(mode="after")
    def _sharded_is_complete_and_on_devices(self) -> "TrainConfig":
        if self.executor != "sharded":
            return self
        if self.backend != "engine":
            raise PydanticCustomError(
                "sharded_needs_engine",
                f"executor sharded works only with backend engine, not with {self.backend}",
            )
        if self.method == "qlora":
            raise PydanticCustomError(
                "sharded_quantized",
                "executor sharded cannot shard the 4-bit weights of qlora: use method lora, or executor "
                "block",
            )
        if (self.optimizer.name, self.optimizer.state) != ("adamw", "fp32"):
            raise PydanticCustomError(
                "sharded_optimizer",
                "executor sharded has only adamw with fp32 state: remove optimizer.name and optimizer.state, "
                "or use executor block",
            )
        if self.memory.mode == "stream":
            raise PydanticCustomError(
                "sharded_streamed",
                "executor sharded keeps all tensors on the devices, so memory mode stream needs executor "
                "block",
            )
        return self

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> "TrainConfig":
        # Raises for shapes that no tokenizer could make possible.
        try:
            row = self.model.tokens_per_row
        except InputError as problem:
            raise PydanticCustomError(problem.code, str(problem)) from None
        tokens = self.batch_size * self.accumulation * self.said_processes * row
        if tokens > limits.MAX_TOKENS_PER_STEP:
            raise PydanticCustomError(
                "step_too_large",
                f"one step has {tokens:,} tokens, above the limit of "
                f"{limits.MAX_TOKENS_PER_STEP:,} (MAX_TOKENS_PER_STEP): lower batch_size, accumulation or "
                "model.context_length",
            )
        return self

    @property
    def context_length(self) -> int:
        return self.model.tokens_per_row

    @property
    def said_processes(self) -> int:
        """The number in the config; 1 if the config has no number."""
        return self.processes if isinstance(self.processes, int) else 1

    @property
    def has_learned_weights(self) -> bool:
        return self.model.path is not None and not self.model.random_weights

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate of the config, or the default of the method."""
        return self._default(_LEARNING_RATES) if self.learning_rate is None else self.learning_rate

    def _default(self, defaults: Mapping[Situation, _Value]) -> _Value:
        if self.method != "full" and "adapters" in defaults:
            return defaults["adapters"]
        return defaults["pretrained" if self.has_learned_weights else "new_model"]

    @classmethod
    def read(cls, path: Path) -> "TrainConfig":
        return cls.model_validate(read_json(path))

    def to_json(self) -> str:
        return json.dumps(self.model_dump(), indent=2) + "\n"


# The file may come from anybody, and is read as a whole.
_LARGEST_JSON_BYTES = 64 << 20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file a person named."""
    try:
        if path.stat().st_size > _LARGEST_JSON_BYTES:
            raise InputError("unreadable_file", f"{path} is too large to be read as settings.")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("config_not_found", f"The config file {path} does not exist.") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError("unreadable_file", f"{path} cannot be read: {problem}.") from None
    except json.JSONDecodeError as problem:
        raise InputError("not_json", f"{path} is not JSON: {problem}.") from None
    except RecursionError:
        raise InputError("not_json", f"{path} is nested too deeply.") from None
    if not isinstance(value, dict):
        raise InputError(
            "not_json_object", f"{path} must contain a JSON object with the fields of TrainConfig."
        )
    return value
