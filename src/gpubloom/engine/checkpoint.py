"""Checkpoints: a folder that is complete or absent, and that says when it is damaged.

A checkpoint is a model folder in Hugging Face layout plus the state of training. It is written under a
temporary name, every file is fsynced, then the folder is renamed. This file knows folders and files; when
to save and what counts as best is the trainer's business.
"""

import hashlib
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.executors import ExecutorState
from gpubloom.engine.export import CONFIG_FILE, WEIGHTS_FILE, write_model
from gpubloom.engine.model import Model
from gpubloom.plan import TrainConfig

_NAME = re.compile(r"step-(\d{8,})")
_TEMPORARY = ".writing-"
_CHECKSUMS = "checksums.json"
_PROGRESS = "training.json"
_OPTIMIZER = "optimizer.safetensors"
_RANDOM = "training.safetensors"
_WAY_OUT = "delete the folder to resume from the checkpoint before it."


@dataclass(frozen=True)
class Progress:
    """Where a run stands, besides its tensors."""

    step: int
    updates: int
    tokens_seen: int
    loader: dict[str, int]
    data_fingerprint: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and verified."""

    path: Path
    executor: ExecutorState
    progress: Progress
    random: dict[str, Tensor]


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


def write_checkpoint(
    folder: Path,
    settings: dict[str, Any],
    state: ExecutorState,
    tokenizer: Tokenizer,
    context_length: int,
    progress: Progress,
) -> Path:
    """Writes one checkpoint; on any error nothing but earlier checkpoints remains."""
    final = folder / checkpoint_name(progress.step)
    temporary = folder / f"{_TEMPORARY}{final.name}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        temporary.mkdir()
        write_model(temporary, settings, state.weights, tokenizer, context_length)
        safetensors.torch.save_file(state.optimizer, temporary / _OPTIMIZER)
        safetensors.torch.save_file(_random_state(), temporary / _RANDOM)
        (temporary / _PROGRESS).write_text(json.dumps(asdict(progress), indent=2) + "\n", encoding="utf-8")
        _seal(temporary)
        temporary.rename(final)
        _sync(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def best_checkpoint(folder: Path) -> tuple[Path, float] | None:
    """The checkpoint with the lowest evaluation loss, if any was evaluated."""
    evaluated = []
    for path in list_checkpoints(folder):
        loss = json.loads((path / _PROGRESS).read_text(encoding="utf-8"))["metrics"].get("eval/loss")
        if loss is not None:
            evaluated.append((loss, path))
    if not evaluated:
        return None
    loss, path = min(evaluated)
    return path, loss


def read_checkpoint(path: Path, expected: Model) -> Checkpoint:
    """Verifies and reads a checkpoint; ValueError says what does not fit or is damaged."""
    verify_checkpoint(path)
    settings = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
    if differences := _differences(settings, expected.settings):
        raise ValueError(f"{path} is a checkpoint of another architecture: {', '.join(differences)}.")
    progress = Progress(**json.loads((path / _PROGRESS).read_text(encoding="utf-8")))
    executor = ExecutorState(
        weights=safetensors.torch.load_file(path / WEIGHTS_FILE),
        optimizer=safetensors.torch.load_file(path / _OPTIMIZER),
        updates=progress.updates,
    )
    return Checkpoint(path, executor, progress, safetensors.torch.load_file(path / _RANDOM))


def _differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Sizes and kinds in which two config.json differ; tokens and versions do not make an architecture."""
    compared = (name for name, value in expected.items() if isinstance(value, int | float | str))
    return [
        f"{name} {found.get(name)} instead of {expected[name]}"
        for name in compared
        if not name.endswith(("_token_id", "version", "dtype")) and found.get(name) != expected[name]
    ]


def verify_checkpoint(path: Path) -> None:
    """Compares every file with its recorded sha256."""
    try:
        recorded: dict[str, str] = json.loads((path / _CHECKSUMS).read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError) as problem:
        raise ValueError(f"{path} is no complete checkpoint: no {_CHECKSUMS} ({problem}).") from None
    for name, expected in recorded.items():
        if not (path / name).is_file():
            raise ValueError(f"{path} is damaged: {name} is missing; {_WAY_OUT}")
        actual = _sha256(path / name)
        if actual != expected:
            raise ValueError(
                f"{path} is damaged: {name} has the sha256 checksum {actual[:16]}…, "
                f"but {_CHECKSUMS} says {expected[:16]}…; {_WAY_OUT}"
            )


def remove_leftovers(folder: Path) -> None:
    """Deletes what a killed trainer was still writing."""
    for path in folder.glob(f"{_TEMPORARY}step-*"):
        shutil.rmtree(path)


def restore_random_state(random: dict[str, Tensor]) -> None:
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])


def directory_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def _random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _seal(folder: Path) -> None:
    """Checksums of all files, and everything on disk before anyone sees the folder."""
    files = sorted(folder.iterdir())
    checksums: dict[str, Any] = {"sha256": {file.name: _sha256(file) for file in files}}
    (folder / _CHECKSUMS).write_text(json.dumps(checksums, indent=2) + "\n", encoding="utf-8")
    for file in (*files, folder / _CHECKSUMS, folder):
        _sync(file)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
