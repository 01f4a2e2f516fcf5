"""Named tensors in files of any form, read one at a time. Any ValueError is one sentence with the file."""

import json
import math
import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import safetensors
import torch
from torch import Tensor

from gpubloom.engine.checkpoint.sharded import PartReader
from gpubloom.hub.weight_index import UnsafeModelError, read_weight_index

JSON_FORMAT = "gpubloom tensors"
# Numbers as text take many times their memory while they are read.
_LARGEST_JSON_BYTES = 1_000_000_000
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32)
}


class NamedTensors(Protocol):
    """Tensors by name, in the order in which they lie."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> Tensor: ...


def each(tensors: NamedTensors) -> Iterator[tuple[str, Tensor]]:
    for name in tensors.shapes():
        yield name, tensors.read(name)


class SafetensorsFiles:
    """`stem.safetensors`, or several files with an index."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._files_by_name: dict[str, Path] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for file in _safetensors_files(folder, stem):
            try:
                with safetensors.safe_open(file, framework="pt") as opened:
                    # In the order of the bytes, which the header keeps.
                    for name in opened.offset_keys():
                        self._files_by_name[name] = file
                        self._shapes[name] = tuple(opened.get_slice(name).get_shape())
            except (OSError, safetensors.SafetensorError) as problem:
                raise ValueError(f"{file} cannot be read: {problem}.") from None

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._shapes

    def read(self, name: str) -> Tensor:
        with safetensors.safe_open(self._files_by_name[name], framework="pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor


class TorchFile:
    """A dictionary of tensors that torch saved; nothing else is unpickled."""

    def __init__(self, file: Path) -> None:
        try:
            held = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as problem:
            raise ValueError(
                f"{file} cannot be read as a torch file of tensors: {str(problem).splitlines()[0]}"
            ) from None
        if not isinstance(held, dict) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
            raise ValueError(f"{file} holds something else than tensors by name, such as a whole module.")
        self._tensors: dict[str, Tensor] = held

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        return self._tensors[name]


class JsonFile:
    """Tensors as lists of numbers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            if file.stat().st_size > _LARGEST_JSON_BYTES:
                raise ValueError(f"it is larger than {_LARGEST_JSON_BYTES / 1e9:.0f} GB")
            held = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(held, dict) or held.get("format") != JSON_FORMAT:
                raise ValueError(f"its format is not {JSON_FORMAT!r}")
            self._tensors = {each["name"]: _tensor(each) for each in held["tensors"]}
        except KeyError as missing:
            raise ValueError(f"{file} cannot be read: a tensor in it has no {missing}.") from None
        except (OSError, ValueError, TypeError, RecursionError) as problem:
            raise ValueError(f"{file} cannot be read: {problem}.") from None

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        return self._tensors[name]


class PartFiles:
    """Some of the tensors of a divided checkpoint."""

    def __init__(self, folder: Path, reader: PartReader, names: list[str]) -> None:
        self._folder = folder
        self._reader = reader
        self._names = names

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        held = self._reader.shapes()
        return {name: held[name] for name in self._names}

    def read(self, name: str) -> Tensor:
        # Checkpoints of this engine are FP32; whoever divided another one knows its types.
        target = torch.empty(self._reader.shapes()[name], dtype=self._reader.dtype(name))
        try:
            self._reader.read_into({name: target})
        except ValueError as problem:
            raise ValueError(f"{self._folder}: tensor {name} cannot be read: {problem}.") from None
        return target


def _safetensors_files(folder: Path, stem: str) -> list[Path]:
    index = folder / f"{stem}.safetensors.index.json"
    if not index.is_file():
        return [folder / f"{stem}.safetensors"]
    try:
        return sorted({folder / file for file in read_weight_index(index).values()})
    except UnsafeModelError:
        raise
    except (OSError, ValueError, RecursionError) as problem:
        raise ValueError(f"{index} cannot be read: {problem!r}.") from None


def _tensor(described: Mapping[str, Any]) -> Tensor:
    name, shape, values = described["name"], described["shape"], described["values"]
    dtype = DTYPES.get(described["dtype"])
    if dtype is None:
        raise ValueError(f"tensor {name} has the unknown type {described['dtype']}")
    if not isinstance(values, list) or math.prod(shape) != len(values):
        raise ValueError(f"tensor {name} has not as many values as its shape {shape} says")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return torch.tensor(values, dtype=dtype).reshape(shape)
