"""Checkpoints of a divided model: every process writes its part, the first one makes the folder complete.

The same rules hold as for all checkpoints: a folder is complete or absent, and says when it is damaged. Parts
are copied to host memory first, so that training goes on while they are written; where there is no room for
copies, training waits for the disk instead. The folder must be one that all processes see.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh

from gpubloom.engine.checkpoint.folders import CHECKSUMS_FILE, PROGRESS_FILE, checkpoint_name
from gpubloom.engine.checkpoint.progress import RANDOM_FILE, Progress, random_state
from gpubloom.engine.checkpoint.sharded_files import first_cause, link_contents, show_contents
from gpubloom.engine.executors.blocks.snapshot import PARTS, Part
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.executors.sharded.executor import ShardedTensor
from gpubloom.engine.memory.free import free_host_bytes
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.shards.whole_folder import TEMPORARY, complete_or_absent, sha256_of, sync_files


def sharded_names(
    model_folder: ModelFolder, executor: ShardedExecutor
) -> Iterator[tuple[str, ShardedTensor, Part]]:
    """Every divided tensor and what it is called on disk: weights first, then moments."""
    for part in sorted(PARTS, key=lambda part: part != "master"):
        for tensor in executor.tensors:
            block = executor.model.blocks[tensor.block]
            yield model_folder.name_of(block, tensor.spec, part), tensor, part


def sharded_save(
    folder: Path,
    model_folder: ModelFolder,
    executor: ShardedExecutor,
    progress: Progress,
    *,
    host_budget_gb: float | None = None,
) -> Callable[[], None]:
    """What writes the state of this moment; to be called by another thread, in every process.

    Where there is no room for a copy of this process's part it has been written when this returns.
    """
    path = folder / checkpoint_name(progress.step)
    parts = {name: (tensor, part) for name, tensor, part in sharded_names(model_folder, executor)}
    needed = sum(getattr(tensor, part).nbytes for tensor, part in parts.values()) * executor.group.local_size
    # All or none: those who copy must not wait in another thread for those who do not.
    short = executor.group.total(int(needed > free_host_bytes(host_budget_gb) // 2))[0] > 0
    mesh = DeviceMesh.from_group(executor.checkpoint_processes, "cpu")
    state: dict[str, Tensor] = {}
    for name, (tensor, part) in parts.items():
        local = getattr(tensor, part).detach()
        state[name] = tensor.whole(local) if short else tensor.whole(local.to("cpu", copy=True), mesh)
    random = safetensors.torch.save(random_state())

    def complete(temporary: Path, checksums: dict[str, str]) -> None:
        model_folder.write_auxiliary_files(temporary)
        (temporary / RANDOM_FILE).write_bytes(random)
        (temporary / PROGRESS_FILE).write_text(_json(asdict(progress)), encoding="utf-8")
        show_contents(temporary)
        checksums = sync_files(temporary, checksums)
        (temporary / CHECKSUMS_FILE).write_text(_json({"sha256": checksums}), encoding="utf-8")
        sync_files(temporary, checksums)
        link_contents(temporary)

    def write() -> None:
        if executor.group.leads:
            _write_and_complete(path, state, executor, complete)
        else:
            _write_part(path, state, executor)

    if not short:
        return write
    write()
    return lambda: None


def _write_and_complete(
    path: Path,
    state: dict[str, Tensor],
    executor: ShardedExecutor,
    complete: Callable[[Path, dict[str, str]], None],
) -> None:
    told = False
    try:
        with complete_or_absent(path) as temporary:
            told = True
            _tell(executor, None)
            complete(temporary, _write(temporary, state, executor))
    except BaseException as problem:
        if not told:
            _tell(executor, str(problem))
        raise


def _write_part(path: Path, state: dict[str, Tensor], executor: ShardedExecutor) -> None:
    if (problem := _tell(executor, None)) is not None:
        raise OSError(problem)
    _write(path.parent / f"{TEMPORARY}{path.name}", state, executor)


def _write(temporary: Path, state: dict[str, Tensor], executor: ShardedExecutor) -> dict[str, str]:
    """Writes this process's part; the first process learns the checksums of all."""
    processes = executor.checkpoint_processes
    try:
        save(state, storage_writer=FileSystemWriter(temporary), process_group=processes)
    except CheckpointException as problem:
        raise OSError(first_cause(problem)) from problem
    own = {file.name: sha256_of(file) for file in temporary.glob(f"__{executor.group.rank}_*.distcp")}
    gathered: list[Any] = [None] * executor.group.size
    dist.all_gather_object(gathered, own, group=processes)
    return {name: checksum for checksums in gathered for name, checksum in checksums.items()}


def _tell(executor: ShardedExecutor, problem: str | None) -> str | None:
    """What the first process says about the folder, in every process."""
    said = [problem]
    dist.broadcast_object_list(said, src=0, group=executor.checkpoint_processes)
    return said[0]


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
