"""An adapter folder as PEFT reads and writes it: adapter_config.json and adapter_model.safetensors."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from gpubloom.engine.models.lora import LoraBlocks, LoraSettings, is_transposed
from gpubloom.errors import CodedError, InputError
from gpubloom.json_files import read_json

CONFIG_FILE = "adapter_config.json"
WEIGHTS_STEM = "adapter_model"
WEIGHTS_FILE = f"{WEIGHTS_STEM}.safetensors"
# What PEFT writes before a tensor's name in a model folder.
PREFIX = "base_model.model."

# Settings that change what an adapter computes, and the values that leave it as this engine computes it.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "use_rslora": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layers_to_transform": (None, []),
    "layer_replication": (None, []),
    "exclude_modules": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, []),
    "lora_bias": (None, False),
}


@dataclass(frozen=True)
class Adapter:
    """What an adapter folder holds. Tensors by their names in a model folder."""

    settings: LoraSettings
    tensors: dict[str, Tensor]
    base_model: str | None


def write_adapter_config(folder: Path, model: LoraBlocks, base_model: str | None = None) -> None:
    """Says what the adapters in a folder belong to and how they are applied."""
    layers = model.templates.values()
    modules = [layer.get_submodule(path) for layer in layers for path in model.targets if _has(layer, path)]
    targets = model.settings.targets
    if targets == "all-linear":
        targets = tuple(sorted({path.rpartition(".")[2] for path in model.targets}))
    alpha = model.settings.alpha
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": model.settings.rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": model.settings.dropout,
        "target_modules": list(targets),
        "fan_in_fan_out": any(is_transposed(module) for module in modules),
        "bias": "none",
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class BaseNeeded(CodedError, ValueError):
    """An adapter without a run that says what it was trained on. `named`: what its file says, as a hint."""

    code = "base_needed"

    def __init__(self, named: object) -> None:
        hint = f" The adapter's {CONFIG_FILE} names the base model {str(named)[:200]!r}." if named else ""
        super().__init__(
            "This folder contains an adapter, and its base model is unknown: pass the folder of the base "
            f"model (--base; --base-model for bloom chat and bloom models generate).{hint}"
        )


def read_adapter(folder: Path) -> Adapter:
    """An adapter of this engine or of PEFT; ValueError when it is of a kind that is not known here."""
    try:
        config = read_json(folder / CONFIG_FILE)
        tensors = safetensors.torch.load_file(folder / WEIGHTS_FILE)
    except (OSError, ValueError, safetensors.SafetensorError) as problem:
        raise InputError("not_an_adapter", f"{folder} is not an adapter folder: {problem}.") from None
    return Adapter(
        settings=_settings(folder / CONFIG_FILE, config),
        tensors={name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()},
        base_model=config.get("base_model_name_or_path"),
    )


def _settings(path: Path, config: Any) -> LoraSettings:
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise InputError("unsupported_adapter", f"{path} describes an adapter that is not LoRA.")
    for name, plain in _PLAIN.items():
        if config.get(name) not in plain:
            raise InputError(
                "unsupported_adapter",
                f"{path} sets {name} to {config[name]!r}, which this engine does not support.",
            )
    targets = config.get("target_modules")
    if targets != "all-linear" and not isinstance(targets, list):
        raise InputError("adapter_invalid", f"{path} has no list of target modules.")
    try:
        return LoraSettings(
            rank=int(config["r"]),
            alpha=float(config["lora_alpha"]),
            targets=tuple(sorted({_within_layer(str(name)) for name in targets}))
            if isinstance(targets, list)
            else "all-linear",
        )
    except (KeyError, TypeError) as problem:
        raise InputError("adapter_invalid", f"{path} has no valid value for {problem}.") from None


def _has(layer: Any, path: str) -> bool:
    return any(path == name for name, _ in layer.named_modules())


def _within_layer(target: str) -> str:
    """PEFT lists the layers of a small model one by one, by their whole paths."""
    return re.sub(r"^.*\.\d+\.", "", target)
