"""Writes an adapter folder from tensors in memory, as the engine's files and PEFT's are compared with."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

from gpubloom.engine.adapter_folder import PREFIX, WEIGHTS_FILE, write_adapter_config
from gpubloom.engine.models.lora import LoraBlocks


def write_adapter(
    folder: Path, model: LoraBlocks, tensors: Mapping[str, Tensor], base_model: str | None = None
) -> None:
    """Writes an adapter into an existing folder. `tensors` by their names in a model folder."""
    write_adapter_config(folder, model, base_model)
    named = {f"{PREFIX}{name}": tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(named, folder / WEIGHTS_FILE, metadata={"format": "pt"})
