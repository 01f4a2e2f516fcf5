"""TrainConfig: what a person asks for, validated once for the command line, the server and the engine.

Field names are snake_case; camelCase is accepted on input. Unknown fields are rejected. A config never says
where tensors live or how fast they move: that is the plan's answer.

Forms are made from the JSON schema of these fields: title, description, limits, default, choices.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import limits
from gpubloom.plan.data_config import DataConfig, TokenizerConfig
from gpubloom.plan.fields import Situation, shown
from gpubloom.plan.model_config import ModelConfig
from gpubloom.plan.optimizer_config import BETA2S, WEIGHT_DECAYS, OptimizerConfig, ScheduleConfig
from gpubloom.plan.validation import Part
from gpubloom.traincard.alert_rules import EVENT_RULES, RULES

# New weights take large steps, pretrained ones small steps; adapters lie in between.
_LEARNING_RATES: Mapping[Situation, float] = {"adapters": 2e-4, "pretrained": 2e-5, "new_model": 1e-3}
# Pretrained weights need few passes over the data, and small steps need fewer rows.
_EPOCHS: Mapping[Situation, int] = {"pretrained": 3, "new_model": 10}
_BATCH_SIZES: Mapping[Situation, int] = {"pretrained": 8, "new_model": 32}

_Value = TypeVar("_Value", int, float)

Method = Literal["full", "lora", "qlora"]
BackendName = Literal["engine", "trl", "unsloth"]


SamplePrompt = Annotated[str, Field(min_length=1, max_length=limits.MAX_SAMPLE_PROMPT_CHARACTERS)]


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
    prompts: list[SamplePrompt] = Field(
        [],
        max_length=limits.MAX_SAMPLE_PROMPTS,
        title="Sample prompts",
        description="Prompts that the model answers before the first step and at every evaluation, always "
        "with its likeliest tokens.",
        json_schema_extra=shown(lines=True),
    )
    sample_tokens: int = Field(
        64,
        ge=1,
        le=limits.MAX_SAMPLE_TOKENS,
        title="Tokens per sample",
        description="Longest answer to a sample prompt; each token takes one forward pass.",
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


class AlertsConfig(Part):
    """Rules of this run: what its owner is told, and what stops it (docs/alerts.md)."""

    on: list[str] = Field(
        [],
        max_length=50,
        title="Alerts",
        description="Rules that send an alert about this run, such as failed, diverged; instead of those of "
        "your channels.",
        json_schema_extra=shown(empty="as your channels say"),
    )
    stop_on: list[str] = Field(
        [],
        max_length=50,
        title="Stop early on",
        description="Rules that stop this run, such as diverged, no_learning, overfitting.",
        json_schema_extra=shown(empty="nothing"),
    )

    @field_validator("on", "stop_on")
    @classmethod
    def _known_rules(cls, rules: list[str]) -> list[str]:
        if unknown := sorted(set(rules) - set(RULES)):
            raise PydanticCustomError(
                "unknown_alert_rule",
                f"{unknown[0]!r} is not a rule. Rules are {', '.join(EVENT_RULES)}, and the names of "
                "diagnoses in docs/alerts.md.",
            )
        return list(dict.fromkeys(rules))


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

    gradients: Literal["once", "twice"] = Field(
        "once",
        title="Gradients",
        description="If the run does not fit in host memory otherwise, the last layers compute their "
        "gradients twice instead of storing them; steps are slower, the result is the same.",
        json_schema_extra=shown(choices={"once": "Computed once", "twice": "Twice, if memory is short"}),
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
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = Field(
        "auto",
        title="Precision",
        description="Number format of the computation; trainable weights also keep an fp32 master copy.",
        json_schema_extra=shown(
            choices={
                "auto": "Automatic",
                "bf16": "bf16",
                "fp16": "fp16, with loss scaling",
                "fp32": "fp32",
                "fp8": "fp8 matrix products, on Ada, Hopper and newer GPUs",
            }
        ),
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto",
        title="Compile layers",
        description="Compiles the layers, which takes about a minute and makes steps faster; automatic "
        "compiles only long runs on GPUs.",
        json_schema_extra=shown(choices={"auto": "Automatic", "on": "Yes", "off": "No"}),
    )
    deterministic: bool = Field(
        False,
        title="Deterministic",
        description="Uses only GPU kernels that give the same bits every time, which may be slower. On a CPU "
        "a repeated or resumed run always has the same bits.",
    )
    memory: MemoryConfig = MemoryConfig()
    method: Method = Field(
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
    backend: BackendName = Field(
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
    alerts: AlertsConfig = AlertsConfig()

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
            "invalid_processes",
            "{processes} must be a number from 1 to {most}, or auto",
            {"processes": repr(processes), "most": f"{limits.MAX_PROCESSES:,}"},
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
        for name, values in (("weight_decay", WEIGHT_DECAYS), ("beta2", BETA2S)):
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
    def _unsloth_has_its_own_rope(self) -> "TrainConfig":
        if self.backend == "unsloth" and self.model.rope_scaling is not None:
            raise PydanticCustomError(
                "backend_rope_scaling",
                "backend unsloth does not take model.rope_scaling: remove it, or use backend engine or trl",
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
    def _other_backends_choose_their_kernels(self) -> "TrainConfig":
        if self.precision == "fp8" and self.backend != "engine":
            raise PydanticCustomError(
                "precision_not_supported",
                f"backend {self.backend} does not support precision fp8: use precision auto, or backend "
                "engine",
            )
        if self.deterministic and self.backend != "engine":
            raise PydanticCustomError(
                "backend_not_deterministic",
                f"backend {self.backend} has no deterministic mode: remove deterministic, or use backend "
                "engine",
            )
        return self

    @model_validator(mode="after")
    def _samples_need_logits(self) -> "TrainConfig":
        if self.eval.prompts and self.backend == "unsloth":
            raise PydanticCustomError(
                "backend_without_samples",
                "backend unsloth cannot answer sample prompts while it trains: remove eval.prompts, or use "
                "backend engine or trl",
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
