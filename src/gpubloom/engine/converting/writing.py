"""Named tensors written in one of the forms. What is written is complete when it returns, not yet on disk."""

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from gpubloom.engine.checkpoint.sharded import show_contents
from gpubloom.engine.converting.named_tensors import DTYPES, JSON_FORMAT, NamedTensors, each
from gpubloom.engine.shards.sharding import SHARD_BYTES
from gpubloom.engine.shards.tensor_file import TensorFileWriter, bytes_of, entries

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
        raise ValueError(
            f"JSON is for models of at most {LARGEST_JSON_WEIGHTS:,} weights, and this one has {count:,}: "
            "choose safetensors or torch."
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
            raise ValueError(f"Tensor {name} is {tensor.dtype}, which is not converted.")
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
        raise ValueError(f"Tensor {name} is {tensor.dtype}, which is not converted.")
    if not tensor.is_floating_point():
        return json.dumps(tensor.flatten().tolist())
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"Tensor {name} holds values that are not finite, for which JSON has no word.")
    wide = tensor.flatten().to(torch.float64 if tensor.dtype == torch.float64 else torch.float32)
    # numpy writes the shortest text of a number in its own precision, Python that of a double.
    return f"[{', '.join(map(str, wide.numpy().astype(str)))}]"
