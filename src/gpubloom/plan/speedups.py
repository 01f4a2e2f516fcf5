"""How much faster the engine is than PEFT, as measured on a machine (`bloom models bench`); never assumed.

Measurements are kept in BLOOM_HOME/speedups.json, the newest of each machine, device, model size, method,
precision and set of versions. A plan carries one only if it was measured on the machine that the plan is for,
with the same method and precision and a model of about the same size.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from gpubloom.plan.config import TrainConfig
from gpubloom.plan.hardware import Hardware
from gpubloom.traincard.atomic_write import read_json_object, replace_file

if TYPE_CHECKING:
    from gpubloom.plan.planner import Plan

SPEEDUPS_FILE = "speedups.json"
_MOST = 200
# A model of half or twice the size still counts as measured: both sides compute about as much per token.
_SIZE_CLASS = 2.0
_BASELINES = {"full": "transformers with checkpointing", "lora": "PEFT with checkpointing"}

Measured = Literal["full", "lora"]


class Speedup(BaseModel):
    """The engine beside a baseline on one machine, in turns, by the median of the rounds' ratios."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    machine: str = Field(description="Name of the machine.")
    device: str = Field(description="The GPU, or the CPU and its cores.")
    model: str = Field(description="The shape of the model.")
    parameters: int = Field(gt=0)
    method: Measured
    precision: str
    batch_size: int = Field(gt=0)
    context_length: int = Field(gt=0)
    ratio: float = Field(gt=0, description="Step time of the baseline divided by that of the engine.")
    lowest: float = Field(gt=0, description="The lowest ratio of a round.")
    highest: float = Field(gt=0, description="The highest ratio of a round.")
    rounds: int = Field(gt=0)
    step_seconds: float = Field(gt=0, description="Median step time of the engine.")
    baseline_step_seconds: float = Field(gt=0, description="Median step time of the baseline.")
    versions: dict[str, str]
    measured_at: datetime

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know the pair
    @property
    def baseline(self) -> str:
        """What the engine is compared with."""
        return _BASELINES[self.method]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Such as "1.9 × faster than PEFT with checkpointing, measured on this machine on 2026-11-16"."""
        day = f"{self.measured_at:%Y-%m-%d}"
        if self.ratio >= 1:
            return f"{self.ratio:.1f} × faster than {self.baseline}, measured on this machine on {day}"
        return f"{1 / self.ratio:.1f} × slower than {self.baseline}, measured on this machine on {day}"

    @property
    def key(self) -> tuple[object, ...]:
        """Measurements with the same key replace each other."""
        versions = tuple(sorted(self.versions.items()))
        size = (self.model, self.batch_size, self.context_length)
        return (self.machine, self.device, self.method, self.precision, *size, *versions)


def device_name(hardware: Hardware, *, on_gpu: bool) -> str:
    """How measurements name the device of a machine."""
    return hardware.gpus[0].name if on_gpu else f"CPU, {hardware.cpu_cores} cores"


def read_speedups(home: Path) -> list[Speedup]:
    """All measurements, oldest first; a file that cannot be read holds none."""
    try:
        stored = (read_json_object(home / SPEEDUPS_FILE) or {}).get("measurements")
    except (OSError, ValueError):
        return []
    found = []
    for each in stored if isinstance(stored, list) else ():
        try:
            found.append(Speedup.model_validate(each))
        except ValidationError:
            # Of another version.
            continue
    return sorted(found, key=lambda each: each.measured_at)


def store_speedup(home: Path, measured: Speedup) -> Path:
    """Adds a measurement; one with the same key is replaced."""
    kept = [each for each in read_speedups(home) if each.key != measured.key]
    entries = [*kept, measured][-_MOST:]
    home.mkdir(parents=True, exist_ok=True)
    content = _File(measurements=entries).model_dump_json(indent=2)
    replace_file(home / SPEEDUPS_FILE, content + "\n")
    return home / SPEEDUPS_FILE


class _File(BaseModel):
    v: int = 1
    measurements: list[Speedup]


def find_speedup(
    known: Iterable[Speedup], plan: "Plan", config: TrainConfig, hardware: Hardware
) -> Speedup | None:
    """The measurement for a plan: of the closest model size, the newest. None where there is none."""
    if config.backend != "engine" or config.said_processes > 1 or plan.executor != "block":
        return None
    device = device_name(hardware, on_gpu=plan.device != "cpu")
    fitting = [
        each
        for each in known
        if (each.machine, each.device) == (hardware.name, device)
        and (each.method, each.precision) == (config.method, plan.precision)
        and _distance(each, plan) <= _SIZE_CLASS
    ]
    return min(fitting, key=lambda each: (_distance(each, plan), -each.measured_at.timestamp()), default=None)


def _distance(measured: Speedup, plan: "Plan") -> float:
    """How many times one model is as large as the other."""
    sizes = sorted((measured.parameters, plan.parameters))
    return sizes[1] / sizes[0]


def with_speedup(plan: "Plan", config: TrainConfig, hardware: Hardware, home: Path) -> "Plan":
    """The plan with what was measured for such a run on this machine, if anything was."""
    found = find_speedup(read_speedups(home), plan, config, hardware)
    return plan if found is None else plan.model_copy(update={"speedup": found})
