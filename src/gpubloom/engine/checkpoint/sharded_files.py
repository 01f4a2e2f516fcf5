"""Files of torch's distributed checkpoints: tensors of which every process wrote its part.

The folder is what `torch.distributed.checkpoint` reads, so other tools read it too. Its table of contents is
a pickle: here it is opened with those few types alone that a table of contents is made of.
"""

import pickle
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from gpubloom.engine.checkpoint.folders import CONTENTS_FILE, HIDDEN_CONTENTS_FILE

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
            raise ValueError(first_cause(problem)) from problem
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, AssertionError, KeyError) as problem:
            raise ValueError(_in_words(problem)) from problem


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
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no table of contents needs")
        return super().find_class(module, name)


def _read_contents(folder: Path) -> Metadata:
    file = folder / CONTENTS_FILE
    if not file.is_file():
        file = folder / HIDDEN_CONTENTS_FILE
    try:
        with file.open("rb") as stream:
            found = _load(stream)
    except FileNotFoundError:
        raise ValueError(f"{CONTENTS_FILE} is missing") from None
    except Exception as problem:  # noqa: BLE001 - a damaged pickle may raise anything
        raise ValueError(f"{file.name} cannot be read: {_in_words(problem)}") from None
    return found


def _load(stream: IO[bytes]) -> Metadata:
    found = _Contents(stream).load()
    if not isinstance(found, Metadata) or not found.storage_data:
        raise pickle.UnpicklingError("it is no table of contents")
    for target in found.storage_data.values():
        # A name, never a path: nothing outside the folder is read.
        if Path(target.relative_path).name != target.relative_path:
            raise pickle.UnpicklingError(f"it names {target.relative_path}, which lies elsewhere")
    return found
