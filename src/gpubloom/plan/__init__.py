"""What a person asks for (TrainConfig), what a model and a machine are, and whether they fit (plan).

Both the training packages and the service packages use it. It knows no torch, no server and no run directory.
"""

from gpubloom.plan.config import (
    AlertsConfig,
    CheckpointConfig,
    EvalConfig,
    LoraConfig,
    MemoryConfig,
    TrainConfig,
)
from gpubloom.plan.data_config import DataConfig, TokenizerConfig
from gpubloom.plan.data_files import demo_fields, estimate_tokens, find_files
from gpubloom.plan.decoder import DecoderShape, LayerShape
from gpubloom.plan.hardware import Calibration, Gpu, Hardware, detect_hardware
from gpubloom.plan.model_config import ModelConfig
from gpubloom.plan.nearest import NearestFit, Needs, nearest_fits, needs_of
from gpubloom.plan.optimizer_config import OptimizerConfig, ScheduleConfig
from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.plan.planner import Memory, Phase, Plan, plan, plan_on, predict, processes_on, share_of
from gpubloom.plan.refusal import DoesNotFit
from gpubloom.plan.request import choose_precision, shape_of
from gpubloom.plan.run_files import run_files
from gpubloom.plan.shapes import PRESETS, SHAPES, ModelShape
from gpubloom.plan.sizes import named_config, named_shape, preset_for, preset_label
from gpubloom.plan.steps import CountedData, EpochData, few_steps, steps_of
from gpubloom.plan.validation import FieldProblem, InvalidConfig, explain, problems

__all__ = [
    "PRESETS",
    "SHAPES",
    "AlertsConfig",
    "BlockPlacement",
    "Calibration",
    "CheckpointConfig",
    "CountedData",
    "DataConfig",
    "DecoderShape",
    "DoesNotFit",
    "EpochData",
    "EvalConfig",
    "FieldProblem",
    "Gpu",
    "Hardware",
    "InvalidConfig",
    "LayerShape",
    "LoraConfig",
    "Memory",
    "MemoryConfig",
    "ModelConfig",
    "ModelShape",
    "NearestFit",
    "Needs",
    "OptimizerConfig",
    "Phase",
    "Placement",
    "Plan",
    "ScheduleConfig",
    "TokenizerConfig",
    "TrainConfig",
    "choose_precision",
    "demo_fields",
    "detect_hardware",
    "estimate_tokens",
    "explain",
    "few_steps",
    "find_files",
    "named_config",
    "named_shape",
    "nearest_fits",
    "needs_of",
    "plan",
    "plan_on",
    "predict",
    "preset_for",
    "preset_label",
    "problems",
    "processes_on",
    "run_files",
    "shape_of",
    "share_of",
    "steps_of",
]
