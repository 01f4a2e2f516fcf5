"""TrainConfig: what a person asks for, validated once for the command line, the server and the engine.

Field names are snake_case; camelCase is accepted on input. Unknown fields are rejected. A config never says
where tensors live or how fast they move: that is the plan's answer.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.errors import InputError
from gpubloom.plan import limits
from gpubloom.plan.shapes import PRESETS, ModelShape
from gpubloom.plan.validation import Fraction, Part

# Bytes and end-of-text: no tokenizer has fewer tokens.
_SMALLEST_VOCABULARY = 257
# A model folder allows far longer rows than most fine-tuning wants.
_FOLDER_CONTEXT_LENGTH = 1_024


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
            raise PydanticCustomError(
                "tokenizer_path_mismatch", "tokenizer.path belongs to kind 'file', and kind 'file' needs it"
            )
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
            raise PydanticCustomError(
                "eval_fraction_too_large", "at most half of the text can be kept for evaluation"
            )
        return fraction

    @model_validator(mode="after")
    def _examples_have_their_own_settings(self) -> "DataConfig":
        if self.kind == "examples":
            return self
        defaults = type(self).model_construct()
        of_examples = ("format", "columns", "encoding", "train_on", "packing", "too_long")
        said = [name for name in of_examples if getattr(self, name) != getattr(defaults, name)]
        if said:
            raise PydanticCustomError(
                "needs_kind_examples",
                f"{', '.join(said)} only mean something with kind 'examples'; the kind is text",
            )
        return self


# Weights that have learned something need few looks at the data, and small steps need fewer rows.
_LEARNED_MODEL_EPOCHS, _LEARNED_MODEL_BATCH = 3, 8
# What is new takes large steps, what has learned something small ones; adapters lie in between.
_NEW_MODEL_RATE, _ADAPTER_RATE, _LEARNED_MODEL_RATE = 1e-3, 2e-4, 2e-5


def folder_context_length(positions: int | None) -> int:
    """The row length for a model folder that nobody gave one, for a model with so many positions."""
    return min(_FOLDER_CONTEXT_LENGTH, positions or _FOLDER_CONTEXT_LENGTH)


class ModelConfig(Part):
    """A preset, and the sizes that should differ from it."""

    preset: str = Field("tiny", description="One of: " + ", ".join(PRESETS))
    hidden_size: int | None = Field(None, ge=2, le=limits.MAX_HIDDEN_SIZE)
    layers: int | None = Field(None, ge=1, le=limits.MAX_LAYERS)
    heads: int | None = Field(None, ge=1, le=limits.MAX_HEADS)
    kv_heads: int | None = Field(None, ge=1, le=limits.MAX_HEADS)
    ffn_size: int | None = Field(None, ge=1, le=limits.MAX_FFN_SIZE)
    context_length: int | None = Field(None, ge=1, le=limits.MAX_CONTEXT_LENGTH)
    tie_embeddings: bool | None = None
    rope_theta: float | None = Field(None, gt=0)
    norm_eps: float | None = Field(None, gt=0, le=1)
    path: str | None = Field(
        None, min_length=1, description="A model folder in Hugging Face layout, instead of a preset."
    )
    random_weights: bool = Field(
        False, description="Takes the shape of model.path's config.json and begins with random weights."
    )
    architecture: str | None = Field(
        None, min_length=1, max_length=100, description="An architecture of a plug-in, in these sizes."
    )
    options: dict[str, Any] = Field({}, description="What that plug-in is told besides the sizes.")

    @field_validator("preset")
    @classmethod
    def _preset_is_known(cls, preset: str) -> str:
        if preset not in PRESETS:
            raise PydanticCustomError(
                "unknown_preset", f"unknown preset {preset!r}; there are {', '.join(PRESETS)}"
            )
        return preset

    @model_validator(mode="after")
    def _a_folder_brings_its_own_sizes(self) -> "ModelConfig":
        if self.path is None:
            if self.random_weights:
                raise PydanticCustomError(
                    "random_weights_without_path",
                    "random_weights belongs to path; a preset begins with random weights anyway",
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
                "path_brings_sizes", f"path brings its own sizes: leave out {', '.join(own)}"
            )
        return self

    @model_validator(mode="after")
    def _options_belong_to_a_plug_in(self) -> "ModelConfig":
        if self.options and self.architecture is None:
            raise PydanticCustomError(
                "options_without_architecture", "options are for a plug-in: name it in architecture"
            )
        if self.tie_embeddings and self.architecture is not None:
            raise PydanticCustomError(
                "tie_embeddings_with_plugin",
                "an architecture of a plug-in has a head of its own: leave out tie_embeddings",
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
        base = PRESETS[self.preset]
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


class OptimizerConfig(Part):
    """AdamW. Matrices decay; norms do not."""

    name: Literal["adamw"] = "adamw"
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)
    clip_norm: float = Field(1.0, ge=0, description="Global gradient norm limit; 0 turns clipping off.")

    @field_validator("name", mode="before")
    @classmethod
    def _any_spelling(cls, name: object) -> object:
        return name.lower() if isinstance(name, str) else name


class ScheduleConfig(Part):
    """Linear warm-up, then half a cosine down to a fraction of the learning rate."""

    warmup_steps: int | None = Field(
        None, ge=0, le=limits.MAX_STEPS, description="Overrides warmup_fraction."
    )
    warmup_fraction: Fraction = 0.03
    final_fraction: Fraction = 0.1


class EvalConfig(Part):
    """When to evaluate, besides the end of every epoch and of the run."""

    every_steps: int | None = Field(None, ge=1, le=limits.MAX_STEPS)
    max_batches: int = Field(20, ge=1, le=limits.MAX_STEPS)


class CheckpointConfig(Part):
    """When to save, and what to keep. The best evaluated checkpoint is always kept."""

    directory: str | None = Field(
        None, min_length=1, description="Default: checkpoints/ in the run directory."
    )
    every_epochs: int = Field(1, ge=0, le=limits.MAX_EPOCHS, description="0: not by epoch.")
    every_steps: int | None = Field(None, ge=1, le=limits.MAX_STEPS)
    keep_last: int = Field(2, ge=1, le=1_000_000)


class MemoryConfig(Part):
    """Where tensors may live. Every answer gives the same mathematics; they differ in speed."""

    mode: Literal["auto", "resident", "stream"] = Field(
        "auto",
        description="resident: all on the GPU; stream: decoder layers live in host memory; "
        "auto: whatever is fastest.",
    )
    gpu_budget_gb: float | None = Field(None, gt=0, description="Use no more GPU memory (10^9 bytes).")
    host_budget_gb: float | None = Field(None, gt=0, description="Use no more host memory (10^9 bytes).")


class LoraConfig(Part):
    """Low-rank adapters on frozen weights, for method lora and qlora."""

    rank: int = Field(16, ge=1, le=limits.MAX_LORA_RANK)
    alpha: float = Field(32.0, gt=0, description="Adapters count alpha / rank times.")
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
        "all-linear", description="Names of linear layers, such as q_proj, or all in the decoder layers."
    )
    dropout: float = Field(0.0, ge=0, le=0.9, description="Share of an adapter's inputs left out in a step.")

    @field_validator("targets")
    @classmethod
    def _something_is_adapted(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not targets or not all(targets):
            raise PydanticCustomError("no_lora_targets", "name at least one linear layer, or 'all-linear'")
        return targets


class TrainConfig(Part):
    """One training run, as asked for."""

    version: Literal[1] = 1
    name: str = Field("train", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    seed: int = Field(0, ge=0, lt=2**63)
    epochs: int = Field(
        10, ge=1, le=limits.MAX_EPOCHS, description="By default 10 for a new model, 3 for a learned one."
    )
    max_steps: int | None = Field(None, ge=1, le=limits.MAX_STEPS, description="Ends the run early.")
    batch_size: int = Field(
        32,
        ge=1,
        le=limits.MAX_BATCH_SIZE,
        description="Rows per process and micro-batch; by default 32 for a new model, 8 for a learned one.",
    )
    processes: Annotated[int, Field(ge=1, le=limits.MAX_PROCESSES)] | Literal["auto"] | None = Field(
        None,
        description="That many train together, each with rows of its own: a GPU each, or a share of the "
        "CPU's cores. By default one for each GPU of the machine, or one on a CPU; auto: on a CPU as many as "
        "a short measurement finds fastest, which then share the rows of batch_size.",
    )
    executor: Literal["auto", "block", "sharded"] = Field(
        "auto",
        description="block: every process has the whole model; sharded: it is divided among them; auto: "
        "divided where it does not fit otherwise.",
    )
    cluster: Literal["ray"] | None = Field(
        None,
        description="The processes run on the nodes of this cluster instead of on this machine; all of its "
        "nodes see the run directory and the data.",
    )
    callbacks: list[str] = Field([], max_length=20, description="Plug-ins that are told what happens.")
    accumulation: int = Field(1, ge=1, le=limits.MAX_ACCUMULATION, description="Micro-batches per step.")
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=10,
        description="By default 1e-3 for a new model, 2e-4 for adapters, 2e-5 for a learned one in full.",
    )
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Faster layers, once they are compiled. auto: on GPUs, unless the run is short, which "
        "waits about a minute for it; on a CPU, where the run goes on meanwhile, only when asked for.",
    )
    memory: MemoryConfig = MemoryConfig()
    method: Literal["full", "lora", "qlora"] = Field(
        "full", description="What is trained: all weights, or adapters on frozen (4-bit) ones."
    )
    lora: LoraConfig = LoraConfig()
    backend: Literal["engine", "trl", "unsloth"] = Field(
        "engine", description="What trains: this engine, TRL, or TRL with Unsloth's kernels."
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
            "invalid_processes", f"a number from 1 to {limits.MAX_PROCESSES:,}, or auto"
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
                "lora settings belong to method lora or qlora; the method here is full",
            )
        return self

    @model_validator(mode="after")
    def _learned_weights_have_their_own_defaults(self) -> "TrainConfig":
        if self.has_learned_weights:
            for name, value in (("epochs", _LEARNED_MODEL_EPOCHS), ("batch_size", _LEARNED_MODEL_BATCH)):
                if name not in self.model_fields_set:
                    # Filled in like a default, so that it still counts as not said.
                    object.__setattr__(self, name, value)
        return self

    @model_validator(mode="after")
    def _learned_weights_keep_their_tokenizer(self) -> "TrainConfig":
        """Weights that were trained mean nothing under other tokens: the folder's are taken unless said."""
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
                "examples are written with a model's tokenizer and chat template: set model.path to a model "
                "folder, or data.tokenizer.kind to file and data.tokenizer.path to a tokenizer.json",
            )
        return self

    @model_validator(mode="after")
    def _other_backends_tune_learned_models(self) -> "TrainConfig":
        if self.backend != "engine" and not self.has_learned_weights:
            raise PydanticCustomError(
                "backend_needs_model",
                f"backend {self.backend} tunes a model that has learned something: set model.path to its "
                "folder, or leave the backend to the engine",
            )
        return self

    @model_validator(mode="after")
    def _several_processes_belong_to_the_engine(self) -> "TrainConfig":
        if self.processes not in {None, 1} and self.backend != "engine":
            raise PydanticCustomError(
                "backend_single_process",
                f"processes belongs to backend engine; {self.backend} trains in one process here",
            )
        if self.cluster is not None and not isinstance(self.processes, int):
            raise PydanticCustomError(
                "cluster_needs_processes",
                f"a {self.cluster} cluster does not say how many processes: set processes",
            )
        return self

    @model_validator(mode="after")
    def _sharded_is_complete_and_on_devices(self) -> "TrainConfig":
        if self.executor != "sharded":
            return self
        if self.backend != "engine":
            raise PydanticCustomError(
                "sharded_needs_engine", f"executor sharded belongs to backend engine, not to {self.backend}"
            )
        if self.method == "qlora":
            raise PydanticCustomError(
                "sharded_quantized",
                "executor sharded divides weights of 16 or 32 bits: choose lora, or block",
            )
        if self.memory.mode == "stream":
            raise PydanticCustomError(
                "sharded_streamed",
                "executor sharded keeps everything on the devices; memory stream is for block",
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
                f"a step of {tokens:,} tokens is above the limit of "
                f"{limits.MAX_TOKENS_PER_STEP:,} (MAX_TOKENS_PER_STEP)",
            )
        return self

    @property
    def context_length(self) -> int:
        return self.model.tokens_per_row

    @property
    def said_processes(self) -> int:
        """The number that was asked for; 1 where the machine decides."""
        return self.processes if isinstance(self.processes, int) else 1

    @property
    def has_learned_weights(self) -> bool:
        return self.model.path is not None and not self.model.random_weights

    @property
    def peak_learning_rate(self) -> float:
        """The rate asked for, or what suits the method."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.method != "full":
            return _ADAPTER_RATE
        return _LEARNED_MODEL_RATE if self.has_learned_weights else _NEW_MODEL_RATE

    @classmethod
    def read(cls, path: Path) -> "TrainConfig":
        return cls.model_validate(read_json(path))

    def to_json(self) -> str:
        return json.dumps(self.model_dump(), indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file a person named."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("config_not_found", f"There is no config file {path}.") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError("unreadable_file", f"{path} cannot be read: {problem}.") from None
    except json.JSONDecodeError as problem:
        raise InputError("not_json", f"{path} is not JSON: {problem}.") from None
    if not isinstance(value, dict):
        raise InputError("not_json_object", f"{path} must hold a JSON object with the fields of TrainConfig.")
    return value
