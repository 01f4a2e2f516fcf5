"""OptimizerConfig and ScheduleConfig: how gradients become updates, and how large the steps are."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gpubloom.plan import limits
from gpubloom.plan.fields import Situation, shown
from gpubloom.plan.validation import Fraction, Part

# Decay pulls weights towards zero, which is where new ones belong and pretrained ones do not.
WEIGHT_DECAYS: Mapping[Situation, float] = {"adapters": 0.0, "pretrained": 0.0, "new_model": 0.1}
# The long average suits the small and noisy gradients of tuning; pretraining reacts faster.
BETA2S: Mapping[Situation, float] = {"adapters": 0.999, "pretrained": 0.999, "new_model": 0.95}
_WARMUP_FRACTION = 0.03

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
        BETA2S["new_model"],
        ge=0,
        lt=1,
        title="Beta 2",
        description="Decay rate of the running mean of the squared gradients.",
        json_schema_extra=shown(defaults=BETA2S),
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
        WEIGHT_DECAYS["new_model"],
        ge=0,
        le=limits.MAX_WEIGHT_DECAY,
        title="Weight decay",
        description="Decoupled weight decay of weight matrices; norms do not decay.",
        json_schema_extra=shown(defaults=WEIGHT_DECAYS),
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
