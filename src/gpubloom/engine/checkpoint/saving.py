"""Saves a checkpoint while training goes on: takes a snapshot at once, writes it to disk in a thread."""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import safetensors.torch

from gpubloom.engine.checkpoint.format import (
    CHECKSUMS_FILE,
    PROGRESS_FILE,
    RANDOM_FILE,
    Progress,
    checkpoint_name,
    random_state,
)
from gpubloom.engine.executors import Executor, KeepsBlocks
from gpubloom.engine.executors.blocks.snapshot import Snapshot
from gpubloom.engine.host_memory import free_host_bytes
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.shards.atomic_folder import complete_or_absent, sync_files
from gpubloom.engine.shards.shard_files import SHARD_BYTES, Sharding, moment_stretches, shard, write_shards

if TYPE_CHECKING:
    from gpubloom.engine.executors.sharded import ShardedExecutor

OPTIMIZER_STEM = "optimizer"


class Save:
    """One checkpoint on its way to disk."""

    def __init__(
        self, path: Path, progress: Progress, write: Callable[[], None], snapshot: Snapshot | None = None
    ) -> None:
        """`snapshot` is what `write` takes from, where it takes while training goes on."""
        self.path = path
        self.progress = progress
        self._snapshot = snapshot
        self._write = write
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def peak_bytes(self) -> int:
        """The most memory that the snapshot took beside the model."""
        return 0 if self._snapshot is None else self._snapshot.peak_bytes

    def finish(self) -> None:
        """Until the checkpoint is complete; raises why it will not be."""
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as problem:  # noqa: BLE001 - raised again by finish
            self._problem = problem
            if self._snapshot is not None:
                self._snapshot.abandon()


def checkpoint_bytes(model_folder: ModelFolder, executor: Executor) -> int:
    """The disk space of a checkpoint's weights and moments; its other files are small."""
    return sum(each.total_bytes for each in _shardings(model_folder, executor, SHARD_BYTES))


def start_save(
    folder: Path,
    model_folder: ModelFolder,
    executor: Executor,
    progress: Progress,
    *,
    buffer_bytes: int | None = None,
    host_budget_gb: float | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Save:
    """Begins to save the state of this moment; training may go on at once. All who have a part of it call.

    On any error nothing but earlier checkpoints remains. `buffer_bytes` bounds the memory that is taken
    beside the model; by default it is half of what is free, within the process's budget if it has one.
    """
    path = folder / checkpoint_name(progress.step)
    progress = replace(progress, optimizer=executor.optimizer_name)
    if executor.form == "sharded":
        # Loaded here: it brings torch's sharding, which a run on one device never pays for.
        from gpubloom.engine.checkpoint.sharded import sharded_save

        sharded = cast("ShardedExecutor", executor)
        write_part = sharded_save(folder, model_folder, sharded, progress, host_budget_gb=host_budget_gb)
        return Save(path, progress, write_part)
    random = safetensors.torch.save(random_state())
    shardings = _shardings(model_folder, executor, shard_bytes)
    if buffer_bytes is None:
        buffer_bytes = min(free_host_bytes(host_budget_gb) // 2, sum(each.total_bytes for each in shardings))
    snapshot = cast(KeepsBlocks, executor).snapshot(buffer_bytes)

    def write() -> None:
        with complete_or_absent(path) as temporary:
            checksums = write_shards(temporary, snapshot, shardings)
            model_folder.write_auxiliary_files(temporary)
            (temporary / RANDOM_FILE).write_bytes(random)
            (temporary / PROGRESS_FILE).write_text(_json(asdict(progress)), encoding="utf-8")
            checksums = sync_files(temporary, checksums)
            (temporary / CHECKSUMS_FILE).write_text(_json({"sha256": checksums}), encoding="utf-8")
            sync_files(temporary, checksums)

    return Save(path, progress, write, snapshot)


def _shardings(model_folder: ModelFolder, executor: Executor, shard_bytes: int) -> list[Sharding]:
    moments = moment_stretches(model_folder.model.blocks, executor.optimizer_name)
    return [model_folder.sharding(shard_bytes), shard(moments, OPTIMIZER_STEM, shard_bytes)]


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
