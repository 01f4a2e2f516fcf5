"""Continuing a divided run, or from a divided checkpoint: how many processes wrote it does not matter."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import safetensors
import torch
import torch.distributed as dist
from torch import Tensor

from gpubloom.engine.checkpoint.folders import CONTENTS_FILE, is_sharded
from gpubloom.engine.checkpoint.saving import OPTIMIZER_STEM
from gpubloom.engine.checkpoint.sharded_files import PartReader
from gpubloom.engine.checkpoint.sharded_saving import sharded_names
from gpubloom.engine.executors import Executor, KeepsBlocks
from gpubloom.engine.executors.blocks.snapshot import PARTS
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.executors.sharded.executor import ShardedTensor
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.parallel import ALONE, Group
from gpubloom.engine.shards.reading import ShardFolder
from gpubloom.engine.shards.whole_folder import sha256_of

Shapes = Mapping[str, tuple[int, ...]]


def restore_sharded(
    path: Path, checksums: Mapping[str, str], model_folder: ModelFolder, executor: Executor, advice: str
) -> None:
    """From either form into a divided executor, or from parts into a whole one."""
    folder = _Folder(path, checksums, advice)
    if not isinstance(executor, ShardedExecutor):
        targets = _whole_targets(model_folder, cast(KeepsBlocks, executor))
        folder.check_parts(targets)
        folder.read_parts(targets)
        return
    if not is_sharded(path):
        with _in_agreement(executor):
            folder.read_own_rows(model_folder, executor)
        return
    targets = {
        name: tensor.whole(getattr(tensor, part))
        for name, tensor, part in sharded_names(model_folder, executor)
    }
    with _in_agreement(executor):
        folder.check_parts(targets, executor.group)
    with _in_agreement(executor):
        folder.read_parts(targets, executor.checkpoint_processes)


def _whole_targets(model_folder: ModelFolder, executor: KeepsBlocks) -> dict[str, Tensor]:
    executor.settle()
    targets = {}
    for block, store in zip(model_folder.model.blocks.blocks, executor.stores, strict=True):
        for part in PARTS:
            views = store.trained.views(getattr(store, part))
            for tensor, view in zip(store.trained.tensors, views, strict=True):
                targets[model_folder.name_of(block, tensor, part)] = view
    return targets


class _Folder:
    """A checkpoint of either form. Any ValueError is one sentence: folder, file, tensor, and advice."""

    def __init__(self, path: Path, checksums: Mapping[str, str], advice: str) -> None:
        self._path = path
        self._checksums = checksums
        self._advice = advice
        self._files = ShardFolder(path, checksums, advice)
        self._parts = PartReader(path)

    def check_parts(self, targets: Mapping[str, Tensor], group: Group = ALONE) -> None:
        """Whether these tensors are there and undamaged; of a group each process looks at some files."""
        try:
            held = self._parts.shapes()
        except ValueError as problem:
            raise self._damaged(str(problem)) from None
        self._must_fit(held, {name: tuple(target.shape) for name, target in targets.items()})
        files = sorted(name for name in self._checksums if name.endswith(".distcp") and name != CONTENTS_FILE)
        for name in files[group.rank :: group.size]:
            self._files.compare(name, sha256_of(self._path / name))

    def read_parts(self, targets: Mapping[str, Tensor], processes: Any = None) -> None:
        try:
            self._parts.read_into(targets, processes)
        except ValueError as problem:
            raise self._damaged(str(problem)) from None

    @torch.no_grad()
    def read_own_rows(self, model_folder: ModelFolder, executor: ShardedExecutor) -> None:
        """Of whole tensors those rows that are this process's own."""
        wanted: dict[str, tuple[ShardedTensor, Tensor]] = {}
        for name, tensor, part in sharded_names(model_folder, executor):
            wanted[name] = tensor, getattr(tensor, part)
        weights = {stretch.name for stretch in model_folder.stretches}
        number = 0
        for stem, names in (
            (model_folder.stem, weights),
            (OPTIMIZER_STEM, wanted.keys() - weights),
        ):
            held = self._files.files_of(stem, {name: wanted[name][0].spec.shape for name in names})
            for file, tensors in held.items():
                if number % executor.group.size == executor.group.rank:
                    self._files.compare(file, sha256_of(self._path / file))
                number += 1
                with safetensors.safe_open(self._path / file, framework="pt") as opened:
                    for name in tensors:
                        tensor, target = wanted[name]
                        rows = opened.get_slice(name)[tensor.start : tensor.start + len(target)]
                        target.copy_(rows)

    def _must_fit(self, held: Shapes, wanted: Shapes) -> None:
        for name, shape in held.items():
            if name not in wanted:
                raise self._damaged(f"it holds tensor {name}, which this model does not have")
            if shape != wanted[name]:
                raise self._damaged(f"tensor {name} has shape {shape} instead of {wanted[name]}")
        for name in wanted:
            if name not in held:
                raise self._damaged(f"tensor {name} is not in it")

    def _damaged(self, what: str) -> ValueError:
        return ValueError(f"{self._path} is damaged: {what}; {self._advice}")


@contextmanager
def _in_agreement(executor: ShardedExecutor) -> Iterator[None]:
    """What one process cannot read, none continues from."""
    problem: ValueError | None = None
    try:
        yield
    except ValueError as found:
        problem = found
    said: list[Any] = [None] * executor.group.size
    dist.all_gather_object(
        said, None if problem is None else str(problem), group=executor.checkpoint_processes
    )
    if problem is not None:
        raise problem
    if (other := next((sentence for sentence in said if sentence is not None), None)) is not None:
        raise ValueError(other)
