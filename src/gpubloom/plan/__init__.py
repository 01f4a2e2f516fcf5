"""What a person asks for (TrainConfig), what a model and a machine are, and whether they fit (plan).

Both towers stand on this package. It knows no torch, no server and no run directory.
"""

from gpubloom.plan.config import (
    CheckpointConfig,
    DataConfig,
    EvalConfig,
    LoraConfig,
    MemoryConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainConfig,
)
from gpubloom.plan.demo import demo_fields
from gpubloom.plan.explain import explain
from gpubloom.plan.hardware import Gpu, Hardware, detect_hardware
from gpubloom.plan.planner import Memory, Plan, plan
from gpubloom.plan.run_files import run_files
from gpubloom.plan.shapes import PRESETS, ModelShape
from gpubloom.plan.sources import estimate_tokens, find_files

__all__ = [
    "PRESETS",
    "CheckpointConfig",
    "DataConfig",
    "EvalConfig",
    "Gpu",
    "Hardware",
    "LoraConfig",
    "Memory",
    "MemoryConfig",
    "ModelConfig",
    "ModelShape",
    "OptimizerConfig",
    "Plan",
    "ScheduleConfig",
    "TokenizerConfig",
    "TrainConfig",
    "demo_fields",
    "detect_hardware",
    "estimate_tokens",
    "explain",
    "find_files",
    "plan",
    "run_files",
]
