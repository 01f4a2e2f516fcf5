"""Readers and writers for files of named tensors: safetensors, torch, JSON, distributed checkpoints.

A reader loads one tensor at a time; its ValueError is one sentence that names the file. A writer's file is
complete when it returns, but not yet synced to disk.
"""

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
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from gpubloom.engine.checkpoint.sharded import PartReader, show_contents
from gpubloom.engine.shards.safetensors_file import TensorFileWriter, bytes_of, entries
from gpubloom.engine.shards.shard_files import SHARD_BYTES
from gpubloom.errors import InputError
from gpubloom.hub.weight_index import UnsafeModelError, read_weight_index

JSON_FORMAT = "gpubloom tensors"
# Numbers as text take many times their memory while they are read.
_LARGEST_JSON_BYTES = 1_000_000_000
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32)
}

# JSON is for looking at small models: text takes five times the room, and minutes from there on.
LARGEST_JSON_WEIGHTS = 10_000_000
_SAFETENSORS_TYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


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
                raise InputError("unreadable_file", f"{file} cannot be read: {problem}.") from None

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
            raise InputError(
                "unreadable_file",
                f"{file} cannot be read as a torch file of tensors: {str(problem).splitlines()[0]}",
            ) from None
        if not isinstance(held, dict) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
            raise InputError(
                "not_tensors",
                f"{file} does not contain a state dict, that is, a dictionary of named tensors: save the "
                "state dict of the model instead of the whole model.",
            )
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
                raise InputError(
                    "unreadable_file", f"the file is larger than {_LARGEST_JSON_BYTES / 1e9:.0f} GB"
                )
            held = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(held, dict) or held.get("format") != JSON_FORMAT:
                raise InputError("unreadable_file", f"the format is not {JSON_FORMAT!r}")
            self._tensors = {each["name"]: _tensor(each) for each in held["tensors"]}
        except KeyError as missing:
            raise InputError(
                "unreadable_file", f"{file} cannot be read: a tensor has no {missing}."
            ) from None
        except (OSError, ValueError, TypeError, RecursionError) as problem:
            raise InputError("unreadable_file", f"{file} cannot be read: {problem}.") from None

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        return self._tensors[name]


class PartFiles:
    """Some of the tensors of a sharded checkpoint."""

    def __init__(self, folder: Path, reader: PartReader, names: list[str]) -> None:
        self._folder = folder
        self._reader = reader
        self._names = names

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        held = self._reader.shapes()
        return {name: held[name] for name in self._names}

    def read(self, name: str) -> Tensor:
        # Checkpoints of this engine are FP32; whoever wrote another one knows its types.
        target = torch.empty(self._reader.shapes()[name], dtype=self._reader.dtype(name))
        try:
            self._reader.read_into({name: target})
        except ValueError as problem:
            raise InputError(
                "unreadable_file", f"{self._folder}: tensor {name} cannot be read: {problem}."
            ) from None
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
        raise InputError("unreadable_file", f"{index} cannot be read: {problem!r}.") from None


def _tensor(described: Mapping[str, Any]) -> Tensor:
    name, shape, values = described["name"], described["shape"], described["values"]
    dtype = DTYPES.get(described["dtype"])
    if dtype is None:
        raise InputError("unreadable_file", f"tensor {name} has the unknown data type {described['dtype']}")
    if not isinstance(values, list) or math.prod(shape) != len(values):
        raise InputError(
            "unreadable_file", f"the number of values of tensor {name} does not match its shape {shape}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return torch.tensor(values, dtype=dtype).reshape(shape)


def write_safetensors(folder: Path, stem: str, tensors: NamedTensors, shard_bytes: int = SHARD_BYTES) -> None:
    """Files of about `shard_bytes`, each of tensors of one type, and an index where there are several."""
    groups = list(_grouped(tensors, shard_bytes))
    count = len(groups)
    weight_map: dict[str, str] = {}
    total = 0
    for number, (dtype, names) in enumerate(groups, start=1):
        numbered = f"{stem}-{number:05d}-of-{count:05d}" if count > 1 else stem
        file = f"{numbered}.safetensors"
        shapes = [(name, tensors.shapes()[name]) for name in names]
        contents = entries(shapes, dtype.itemsize)
        writer = TensorFileWriter(folder / file, contents, _SAFETENSORS_TYPES[dtype])
        try:
            for name in names:
                writer.write(_bytes(tensors.read(name)))
            writer.close()
        finally:
            writer.discard()
        weight_map |= dict.fromkeys(names, file)
        total += contents[-1].end
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / f"{stem}.safetensors.index.json").write_text(
            json.dumps(index, indent=2) + "\n", encoding="utf-8"
        )


def write_torch(file: Path, tensors: NamedTensors) -> None:
    """A dictionary of tensors that `torch.load(weights_only=True)` reads."""
    torch.save({name: tensor.contiguous() for name, tensor in each(tensors)}, file)


def write_json(file: Path, tensors: NamedTensors) -> None:
    """Every number with as many digits as it takes to read back the same bits."""
    with file.open("w", encoding="utf-8") as stream:
        stream.write(f'{{"format": {json.dumps(JSON_FORMAT)}, "version": 1, "tensors": [')
        for number, (name, tensor) in enumerate(each(tensors)):
            stream.write("," if number else "")
            head = {"name": name, "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape)}
            stream.write(f'\n{json.dumps(head)[:-1]}, "values": {_values(name, tensor)}}}')
        stream.write("\n]}\n")


def must_be_small(tensors: NamedTensors) -> None:
    count = sum(math.prod(shape) for shape in tensors.shapes().values())
    if count > LARGEST_JSON_WEIGHTS:
        raise InputError(
            "model_too_large",
            f"JSON export supports at most {LARGEST_JSON_WEIGHTS:,} weights, but this model has {count:,}: "
            "choose safetensors or torch.",
        )


def write_sharded(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Torch's distributed checkpoint, of one part: however many processes continue, each takes its own."""
    with warnings.catch_warnings():
        # It says that one process writes alone, which is what is wanted.
        warnings.simplefilter("ignore", UserWarning)
        save(dict(tensors), storage_writer=FileSystemWriter(folder), no_dist=True)
    show_contents(folder)


def _grouped(tensors: NamedTensors, limit: int) -> Iterator[tuple[torch.dtype, list[str]]]:
    group: list[str] = []
    filled, dtype = 0, torch.float32
    for name, tensor in each(tensors):
        if tensor.dtype not in _SAFETENSORS_TYPES:
            raise InputError(
                "unsupported_dtype",
                f"Tensor {name} has the data type {tensor.dtype}, which cannot be converted.",
            )
        if group and (tensor.dtype != dtype or filled + tensor.nbytes > limit):
            yield dtype, group
            group, filled = [], 0
        dtype = tensor.dtype
        group.append(name)
        filled += tensor.nbytes
    if group:
        yield dtype, group


def _bytes(tensor: Tensor) -> memoryview:
    return bytes_of(tensor.contiguous().view(-1).view(torch.uint8))


def _values(name: str, tensor: Tensor) -> str:
    if tensor.dtype not in _NAMES:
        raise InputError(
            "unsupported_dtype", f"Tensor {name} has the data type {tensor.dtype}, which cannot be converted."
        )
    if not tensor.is_floating_point():
        return json.dumps(tensor.flatten().tolist())
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(
            "weights_not_finite",
            f"Tensor {name} contains NaN or infinite values, which JSON cannot store.",
        )
    wide = tensor.flatten().to(torch.float64 if tensor.dtype == torch.float64 else torch.float32)
    # numpy writes the shortest text of a number in its own precision, Python that of a double.
    return f"[{', '.join(map(str, wide.numpy().astype(str)))}]"
