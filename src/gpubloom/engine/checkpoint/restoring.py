"""Restores a checkpoint under any placement; rejects one that is damaged or does not fit the model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import safetensors.torch
from torch import Tensor

from gpubloom.engine.checkpoint.format import (
    CHECKSUMS_FILE,
    CONTENTS_FILE,
    PROGRESS_FILE,
    RANDOM_FILE,
    Progress,
    is_sharded,
)
from gpubloom.engine.checkpoint.saving import OPTIMIZER_STEM
from gpubloom.engine.executors import Executor, KeepsBlocks
from gpubloom.engine.llama_folder import CONFIG_FILE
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.optimizer.encoding import Flat
from gpubloom.engine.shards.atomic_folder import sha256_of
from gpubloom.engine.shards.shard_files import ShardFolder, Stretch, moment_stretches
from gpubloom.errors import InputError

_ADVICE = "delete this checkpoint folder to resume from the previous checkpoint."


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of the expected model whose small files were read and verified."""

    path: Path
    progress: Progress
    random: dict[str, Tensor]
    _model_folder: ModelFolder
    _checksums: dict[str, str]

    def restore(self, executor: Executor) -> None:
        """Brings weights and moments into the executor; ValueError names what is damaged."""
        if executor.optimizer_name != self.progress.optimizer:
            raise InputError(
                "checkpoint_other_optimizer",
                f"The checkpoint {self.path} has the state of {self.progress.optimizer}, but this run uses "
                f"{executor.optimizer_name}: set optimizer.name to {self.progress.optimizer} to resume, or "
                "start a new run from the weights.",
            )
        if executor.form == "sharded" or is_sharded(self.path):
            # Loaded here: it brings torch's sharding, which a run on one device seldom needs.
            from gpubloom.engine.checkpoint.sharded import restore_sharded

            restore_sharded(self.path, self._checksums, self._model_folder, executor, _ADVICE)
        else:
            self._restore_blocks(cast(KeepsBlocks, executor))
        executor.continue_from(self.progress.updates, self.progress.loss_scale)

    def _restore_blocks(self, executor: KeepsBlocks) -> None:
        def flat_of(stretch: Stretch) -> Flat:
            return executor.stores[stretch.block].state[stretch.part]

        executor.settle()
        folder = ShardFolder(self.path, self._checksums, _ADVICE)
        folder.read(self._model_folder.stem, self._model_folder.stretches, flat_of)
        moments = moment_stretches(self._model_folder.model.blocks, executor.optimizer_name)
        folder.read(OPTIMIZER_STEM, moments, flat_of)


def read_checkpoint(path: Path, expected: ModelFolder) -> Checkpoint:
    """Everything but the tensors; ValueError says what does not fit or is damaged."""
    checksums = _checksums(path)
    for name, checksum in checksums.items():
        if not (path / name).is_file():
            raise InputError("damaged_checkpoint", f"{path} is damaged: {name} is missing; {_ADVICE}")
        # What holds tensors is compared when it is read.
        if not name.endswith((".safetensors", ".distcp")) or name in {RANDOM_FILE, CONTENTS_FILE}:
            _compare(path, name, checksum)
    settings = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
    if differences := _differences(settings, expected.model.settings):
        raise InputError(
            "checkpoint_mismatch",
            f"The checkpoint {path} belongs to another architecture: {', '.join(differences)}.",
        )
    progress = json.loads((path / PROGRESS_FILE).read_text(encoding="utf-8"))
    try:
        found = Progress(**progress)
    except TypeError as problem:
        raise InputError(
            "checkpoint_other_version", f"{path} was saved by another version of GPU Bloom: {problem}."
        ) from None
    random = safetensors.torch.load_file(path / RANDOM_FILE)
    return Checkpoint(path, found, random, expected, checksums)


def _checksums(path: Path) -> dict[str, str]:
    try:
        recorded: dict[str, str] = json.loads((path / CHECKSUMS_FILE).read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError) as problem:
        raise InputError(
            "incomplete_checkpoint",
            f"The checkpoint {path} is incomplete: {CHECKSUMS_FILE} cannot be read ({problem}).",
        ) from None
    return recorded


def _compare(path: Path, name: str, expected: str) -> None:
    actual = sha256_of(path / name)
    if actual != expected:
        raise InputError(
            "damaged_checkpoint",
            f"{path} is damaged: {name} has the sha256 checksum {actual[:16]}…, "
            f"but {CHECKSUMS_FILE} says {expected[:16]}…; {_ADVICE}",
        )


def _differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Sizes and kinds in which two config.json differ; tokens and versions do not make an architecture."""
    compared = (name for name, value in expected.items() if isinstance(value, int | float | str))
    return [
        f"{name} {found.get(name)} instead of {expected[name]}"
        for name in compared
        if not name.endswith(("_token_id", "version", "dtype")) and found.get(name) != expected[name]
    ]
