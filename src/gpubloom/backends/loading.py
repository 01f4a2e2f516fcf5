"""Models for TRL: all weights in FP32, or frozen ones, in 4 bits if wanted, with adapters of PEFT."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import LoraConfig

from gpubloom.engine.hardware import Compute
from gpubloom.engine.transformers_loading import load_causal_model
from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import TrainConfig
from gpubloom.plan.rope import scaled_settings


@dataclass(frozen=True)
class Loaded:
    """A model, and the adapters that it is still to get; None: it has them, or trains all its weights."""

    model: Any
    adapters: LoraConfig | None
    # Said to people as what makes this run fast or small.
    optimizations: tuple[str, ...] = ()


def load(config: TrainConfig, compute: Compute) -> Loaded:
    """The model of config.model.path as its method wants it."""
    assert config.model.path is not None, "TrainConfig refuses other backends without a model folder"
    quantized = config.method == "qlora"
    options: dict[str, Any] = {}
    if quantized:
        _must_have_bitsandbytes()
        options = {
            "quantization_config": transformers.BitsAndBytesConfig(  # type: ignore[no-untyped-call]
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=compute.dtype,
            ),
            "device_map": {"": str(compute.device)},
        }
    # Only what is trained needs the precision of FP32.
    dtype = torch.float32 if config.method == "full" else compute.dtype
    folder = Path(config.model.path)
    if config.model.rope_scaling is not None:
        asked = config.model.model_copy(update={"context_length": config.context_length})
        scaled = scaled_settings(read_json(folder / "config.json"), asked)
        options |= {name: scaled[name] for name in ("rope_parameters", "max_position_embeddings")}
    model = load_causal_model(folder, dtype=dtype, **options)
    model.config.use_cache = False
    adapters = None if config.method == "full" else adapters_of(config)
    optimizations = ("4-bit weights (NF4, double quantization)",) if quantized else ()
    return Loaded(model, adapters, optimizations)


def adapters_of(config: TrainConfig) -> LoraConfig:
    """What PEFT is asked for."""
    targets = config.lora.targets
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,  # type: ignore[arg-type]  # a whole number is only its hint
        lora_dropout=config.lora.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias="none",
        task_type="CAUSAL_LM",
    )


def _must_have_bitsandbytes() -> None:
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InputError(
            "not_installed",
            "Method qlora with backend trl needs bitsandbytes: run pip install bitsandbytes, or use backend "
            "engine, which has its own 4-bit quantization.",
        )
