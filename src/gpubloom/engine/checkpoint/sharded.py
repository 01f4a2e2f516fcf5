"""Checkpoints of a sharded model, in the format of `torch.distributed.checkpoint`.

Every process writes its part and the first one makes the folder complete. Parts are copied to host memory
first, so that training goes on while they are written; without room for copies, training waits for the disk.
All processes must see the folder. Any number of processes can continue from it, whoever wrote it.

Other tools read the folder too. Its table of contents is a pickle: it is opened with an allow-list of the few
types that a table of contents is made of.
"""

import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

import safetensors
import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh

from gpubloom.engine.checkpoint.format import (
    CHECKSUMS_FILE,
    CONTENTS_FILE,
    HIDDEN_CONTENTS_FILE,
    PROGRESS_FILE,
    RANDOM_FILE,
    Progress,
    checkpoint_name,
    is_sharded,
    random_state,
)
from gpubloom.engine.checkpoint.saving import OPTIMIZER_STEM
from gpubloom.engine.executors import Executor, KeepsBlocks
from gpubloom.engine.executors.blocks.snapshot import PARTS, Part
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.executors.sharded.executor import ShardedTensor
from gpubloom.engine.host_memory import free_host_bytes
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.optimizer.encoding import Flat
from gpubloom.engine.parallel import ALONE, Group
from gpubloom.engine.shards.atomic_folder import TEMPORARY, complete_or_absent, sha256_of, sync_files
from gpubloom.engine.shards.shard_files import ShardFolder, moment_stretches
from gpubloom.errors import InputError, code_of

_METADATA = "torch.distributed.checkpoint.metadata"
_KNOWN = {
    (_METADATA, "Metadata"),
    (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "TensorProperties"),
    (_METADATA, "ChunkStorageMetadata"),
    (_METADATA, "MetadataIndex"),
    (_METADATA, "StorageMeta"),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("torch", "float32"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}

Shapes = Mapping[str, tuple[int, ...]]


def show_contents(folder: Path) -> None:
    """Gives the table of contents a name that is not hidden."""
    (folder / HIDDEN_CONTENTS_FILE).rename(folder / CONTENTS_FILE)


def link_contents(folder: Path) -> None:
    """Gives it back the name by which torch's own tools look for it; no copy or mirror needs that one."""
    try:
        (folder / HIDDEN_CONTENTS_FILE).hardlink_to(folder / CONTENTS_FILE)
    except OSError:
        # Not every file system has links.
        shutil.copyfile(folder / CONTENTS_FILE, folder / HIDDEN_CONTENTS_FILE)


class PartReader(FileSystemReader):
    """Reads parts; ValueError when the table of contents cannot be read, or is none."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._found: Metadata | None = None

    @property
    def contents(self) -> Metadata:
        if self._found is None:
            self._found = _read_contents(self._folder)
        return self._found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        found = self.contents
        if getattr(found, "storage_meta", None) is None:
            found.storage_meta = StorageMeta()
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors by name, in the order in which they were saved."""
        held = self.contents.state_dict_metadata.items()
        return {name: tuple(each.size) for name, each in held if isinstance(each, TensorStorageMetadata)}

    def dtype(self, name: str) -> torch.dtype:
        held = self.contents.state_dict_metadata[name]
        assert isinstance(held, TensorStorageMetadata)
        return held.properties.dtype

    def read_into(self, targets: Mapping[str, Tensor], processes: Any = None) -> None:
        """Fills tensors, or parts of them, by name; with `processes` all of them at the same time."""
        try:
            with warnings.catch_warnings():
                # It says that one process reads alone, which is what is wanted.
                warnings.simplefilter("ignore", UserWarning)
                load(dict(targets), storage_reader=self, process_group=processes, no_dist=processes is None)
        except CheckpointException as problem:
            raise InputError("damaged_checkpoint", first_cause(problem)) from problem
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, AssertionError, KeyError) as problem:
            raise InputError("damaged_checkpoint", _in_words(problem)) from problem


def first_cause(problem: CheckpointException) -> str:
    """What went wrong in the first process in which something did."""
    _, (cause, _) = min(problem.failures.items(), key=lambda item: item[0])
    return _in_words(cause)


def _in_words(problem: BaseException) -> str:
    lines = str(problem).splitlines()
    return f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__


class _Contents(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN and not (
            module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        ):
            raise pickle.UnpicklingError(
                f"the file contains {module}.{name}, which is not allowed in checkpoint metadata"
            )
        return super().find_class(module, name)


def _read_contents(folder: Path) -> Metadata:
    file = folder / CONTENTS_FILE
    if not file.is_file():
        file = folder / HIDDEN_CONTENTS_FILE
    try:
        with file.open("rb") as stream:
            found = _load(stream)
    except FileNotFoundError:
        raise InputError("damaged_checkpoint", f"{CONTENTS_FILE} is missing") from None
    except Exception as problem:  # noqa: BLE001 - a damaged pickle may raise anything
        raise InputError("damaged_checkpoint", f"{file.name} cannot be read: {_in_words(problem)}") from None
    return found


def _load(stream: IO[bytes]) -> Metadata:
    found = _Contents(stream).load()
    if not isinstance(found, Metadata) or not found.storage_data:
        raise pickle.UnpicklingError("the file contains no checkpoint metadata")
    for target in found.storage_data.values():
        # A name, never a path: nothing outside the folder is read.
        if Path(target.relative_path).name != target.relative_path:
            raise pickle.UnpicklingError(
                f"the file points to {target.relative_path}, which is outside the checkpoint folder"
            )
    return found


def sharded_names(
    model_folder: ModelFolder, executor: ShardedExecutor
) -> Iterator[tuple[str, ShardedTensor, Part]]:
    """Every sharded tensor and what it is called on disk: weights first, then moments."""
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


def restore_sharded(
    path: Path, checksums: Mapping[str, str], model_folder: ModelFolder, executor: Executor, advice: str
) -> None:
    """From either form into a sharded executor, or from parts into a whole one."""
    folder = _Folder(path, checksums, advice)
    if not isinstance(executor, ShardedExecutor):
        _read_blocks(folder, model_folder, cast(KeepsBlocks, executor))
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


def _read_blocks(folder: "_Folder", model_folder: ModelFolder, executor: KeepsBlocks) -> None:
    """Block by block: what is not FP32 is read aside and then encoded."""
    executor.settle()
    moments = moment_stretches(model_folder.model.blocks, executor.optimizer_name)
    stretches = (*model_folder.stretches, *moments)
    folder.check_parts({each.name: torch.empty(each.shape, device="meta") for each in stretches})
    for block, store in enumerate(executor.stores):
        found: list[tuple[Flat, Tensor]] = []
        targets: dict[str, Tensor] = {}
        for each in (each for each in stretches if each.block == block):
            flat = store.state[each.part].part(slice(each.start, each.start + each.length))
            values = flat.tensors[0] if flat.encoding == "fp32" else torch.empty(each.length)
            found.append((flat, values))
            targets[each.name] = values.view(each.shape)
        if targets:
            folder.read_parts(targets)
        for flat, values in found:
            flat.write(values if values.device == flat.device else values.to(flat.device))


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
                raise self._damaged(f"it contains tensor {name}, which this model does not have")
            if shape != wanted[name]:
                raise self._damaged(f"tensor {name} has shape {shape} instead of {wanted[name]}")
        for name in wanted:
            if name not in held:
                raise self._damaged(f"tensor {name} is missing")

    def _damaged(self, what: str) -> ValueError:
        return InputError("damaged_checkpoint", f"{self._path} is damaged: {what}; {self._advice}")


@contextmanager
def _in_agreement(executor: ShardedExecutor) -> Iterator[None]:
    """What one process cannot read, none continues from."""
    problem: ValueError | None = None
    try:
        yield
    except ValueError as found:
        problem = found
    said: list[Any] = [None] * executor.group.size
    told = None if problem is None else (code_of(problem), str(problem))
    dist.all_gather_object(said, told, group=executor.checkpoint_processes)
    if problem is not None:
        raise problem
    if (other := next((each for each in said if each is not None), None)) is not None:
        raise InputError(*other)
