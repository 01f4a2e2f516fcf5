"""The checkpoint format: names, files and the state of training that lies beside weights and moments.

A checkpoint is the folder `step-NNNNNNNN` and is complete or absent. It holds a model folder (or a PEFT
adapter), the moments (`optimizer….safetensors`), `training.json` (`Progress`), `training.safetensors` (states
of the random generators) and `checksums.json`. A sharded checkpoint holds torch's distributed files instead
of whole weights and moments; sharded.py reads and writes these. docs/checkpoints.md describes every file.
"""

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine.shards.atomic_folder import TEMPORARY
from gpubloom.plan import TrainConfig

CHECKSUMS_FILE = "checksums.json"
PROGRESS_FILE = "training.json"
# The table of contents of a sharded checkpoint: as torch names it, and by a name that copies and mirrors do
# not leave out.
HIDDEN_CONTENTS_FILE = ".metadata"
CONTENTS_FILE = "contents.distcp"

_NAME = re.compile(r"step-(\d{8,})")

RANDOM_FILE = "training.safetensors"


def checkpoint_folder(config: TrainConfig, run_dir: Path) -> Path:
    """checkpoints/ in the run directory, or a folder named after the run in the directory asked for."""
    if config.checkpoint.directory is None:
        return run_dir / "checkpoints"
    return Path(config.checkpoint.directory).expanduser() / run_dir.name


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    found = ((match, path) for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name)))
    return [path for _, path in sorted((int(match[1]), path) for match, path in found)]


def is_sharded(folder: Path) -> bool:
    """Whether a folder holds parts that several processes wrote (torch's distributed checkpoint)."""
    return any((folder / name).is_file() for name in (CONTENTS_FILE, HIDDEN_CONTENTS_FILE))


def best_checkpoint(folder: Path) -> tuple[Path, float] | None:
    """The checkpoint with the lowest evaluation loss, if any was evaluated."""
    evaluated = []
    for path in list_checkpoints(folder):
        loss = json.loads((path / PROGRESS_FILE).read_text(encoding="utf-8"))["metrics"].get("eval/loss")
        if loss is not None:
            evaluated.append((loss, path))
    if not evaluated:
        return None
    loss, path = min(evaluated)
    return path, loss


def remove_leftovers(folder: Path) -> None:
    """Deletes what a killed trainer was still writing."""
    for path in folder.glob(f"{TEMPORARY}step-*"):
        shutil.rmtree(path)


def directory_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


@dataclass(frozen=True)
class Progress:
    """What training.json holds."""

    step: int
    updates: int
    tokens_seen: int
    loader: dict[str, int]
    data_fingerprint: str
    metrics: dict[str, float]
    loss_scale: dict[str, float]
    # Checkpoints from before there were examples do not say it.
    trained_tokens: int = 0
    # All of them were AdamW's, before there were others.
    optimizer: str = "adamw"
    # What people want to know of it (`training_metadata`); those of earlier versions do not say it either.
    metadata: dict[str, Any] = field(default_factory=dict)
    # The batches of the run's first evaluation (`PairedChange`), which later ones are compared with.
    first_evaluation: dict[str, Any] = field(default_factory=dict)


def random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(random: dict[str, Tensor]) -> None:
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
