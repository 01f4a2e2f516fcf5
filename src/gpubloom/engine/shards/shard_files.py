"""The safetensors files of a model or of its moments: which tensor lies in which file, writing and reading.

A file holds whole blocks in forward order, so that blocks can be written as they come. Files have about the
same size; a block larger than that has a file of its own. `write_shards` takes the pieces of a snapshot and
holds nothing larger than a piece. `ShardFolder` reads into the blocks wherever they live: it checks all
headers before it reads the first value, and compares checksums while it reads.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.snapshot import (
    MOMENTS,
    Part,
    Piece,
    Snapshot,
    SnapshotAbandoned,
)
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, TensorSpec
from gpubloom.engine.models.layout import Layout
from gpubloom.engine.optimizer.encoding import Flat
from gpubloom.engine.optimizer.moments import FIRST, SECOND, SUFFIXES, MomentLayout
from gpubloom.engine.shards.safetensors_file import (
    Entry,
    TensorFileReader,
    TensorFileWriter,
    bytes_of,
    entries,
)
from gpubloom.errors import InputError
from gpubloom.hub.weight_index import read_weight_index
from gpubloom.plan.optimizer_config import OptimizerName

SHARD_BYTES = 4_000_000_000
_FLOAT_BYTES = 4
_SUFFIX: Mapping[Part, str] = {"master": "", "first": FIRST, "second": SECOND}

_PIECE_LENGTH = 8 << 20
# One core hashes more slowly than a disk reads.
_FILES_AT_ONCE = 4


@dataclass(frozen=True)
class Stretch:
    """A tensor, and the stretch of a block's flat state that it is."""

    name: str
    shape: tuple[int, ...]
    block: int
    part: Part
    start: int
    length: int


@dataclass(frozen=True)
class Shard:
    """One file: the tensors of some blocks."""

    file: str
    stretches: tuple[Stretch, ...]

    @property
    def entries(self) -> list[Entry]:
        return entries([(stretch.name, stretch.shape) for stretch in self.stretches])


@dataclass(frozen=True)
class Sharding:
    """All files of one kind. `index` is the index file as Hugging Face wants it; None for a single file."""

    shards: tuple[Shard, ...]
    index_file: str

    @property
    def total_bytes(self) -> int:
        return _FLOAT_BYTES * sum(each.length for shard in self.shards for each in shard.stretches)

    @property
    def index(self) -> dict[str, object] | None:
        if len(self.shards) == 1:
            return None
        weight_map = {each.name: shard.file for shard in self.shards for each in shard.stretches}
        return {"metadata": {"total_size": self.total_bytes}, "weight_map": weight_map}


def tensor_name(model: BlockModel, block: BlockSpec, tensor: TensorSpec, part: Part, prefix: str = "") -> str:
    """What a tensor, or one of its moments, is called on disk."""
    return f"{prefix}{model.parameter_name(block, tensor)}{_SUFFIX[part]}"


def is_moment(name: str) -> bool:
    return name.endswith(SUFFIXES)


def weight_stretches(model: BlockModel, prefix: str = "") -> list[Stretch]:
    """Every trained tensor by its name in a model folder, in forward order."""
    found = []
    for block, spec in enumerate(model.blocks):
        layout = Layout.of(spec.trained)
        for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
            name = tensor_name(model, spec, tensor, "master", prefix)
            found.append(Stretch(name, tensor.shape, block, "master", start, tensor.length))
    return found


def moment_stretches(model: BlockModel, optimizer: OptimizerName = "adamw") -> list[Stretch]:
    """What the optimizer keeps of every trained tensor, in forward order; first moments before second."""
    return [
        Stretch(
            f"{model.parameter_name(spec, each.tensor)}{each.suffix}",
            each.shape,
            block,
            part,
            each.start,
            each.length,
        )
        for block, spec in enumerate(model.blocks)
        for layout in [MomentLayout.of(spec, optimizer)]
        for part in MOMENTS
        for each in layout.tensors
        if each.part == part
    ]


def shard(stretches: Sequence[Stretch], stem: str, limit: int = SHARD_BYTES) -> Sharding:
    """Files of about `limit` bytes: `stem.safetensors`, or numbered ones when there are several."""
    groups: list[list[Stretch]] = [[]]
    filled = 0
    for block in _by_block(stretches):
        size = _FLOAT_BYTES * sum(each.length for each in block)
        if groups[-1] and filled + size > limit:
            groups.append([])
            filled = 0
        groups[-1] += block
        filled += size
    count = len(groups)
    names = [f"{stem}-{number:05d}-of-{count:05d}" for number in range(1, count + 1)] if count > 1 else [stem]
    shards = (Shard(f"{name}.safetensors", tuple(group)) for name, group in zip(names, groups, strict=True))
    return Sharding(tuple(shards), f"{stem}.safetensors.index.json")


def _by_block(stretches: Sequence[Stretch]) -> list[list[Stretch]]:
    blocks: dict[int, list[Stretch]] = {}
    for stretch in stretches:
        blocks.setdefault(stretch.block, []).append(stretch)
    return list(blocks.values())


def write_shards(folder: Path, snapshot: Snapshot, shardings: Sequence[Sharding]) -> dict[str, str]:
    """Writes all that a snapshot has, one sharding for each of its streams; sha256 by tensor file.

    Tensor files are safely on disk when this returns. On any error the snapshot is abandoned: training is
    held up no longer, and the folder is of no use.
    """
    checksums: dict[str, str] = {}
    problems: list[BaseException] = []
    with ThreadPoolExecutor(len(shardings), thread_name_prefix="checkpoint") as pool:
        writers = [pool.submit(_write, folder, snapshot, sharding) for sharding in shardings]
        for writer in writers:
            problem = writer.exception()
            if problem is None:
                checksums |= writer.result()
            else:
                problems.append(problem)
    if problems:
        # When one writer fails, the others are only told that it is over.
        raise min(problems, key=lambda problem: isinstance(problem, SnapshotAbandoned))
    return checksums


def write_index(folder: Path, sharding: Sharding) -> None:
    """Says which file holds what, where there are several."""
    if sharding.index is not None:
        text = json.dumps(sharding.index, indent=2) + "\n"
        (folder / sharding.index_file).write_text(text, encoding="utf-8")


def _write(folder: Path, snapshot: Snapshot, sharding: Sharding) -> dict[str, str]:
    files = _ShardFiles(folder, sharding)
    try:
        write_index(folder, sharding)
        for piece in snapshot.pieces(sharding.shards[0].stretches[0].part):
            files.write(piece)
        return files.close()
    except BaseException:
        snapshot.abandon()
        raise
    finally:
        files.discard()


class _ShardFiles:
    """The files of one sharding, one open at a time."""

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        self._folder = folder
        self._shards = {stretch.block: shard for shard in sharding.shards for stretch in shard.stretches}
        self._stretches: dict[tuple[int, Part], list[Stretch]] = {}
        for shard in sharding.shards:
            for stretch in shard.stretches:
                self._stretches.setdefault((stretch.block, stretch.part), []).append(stretch)
        self._writer: TensorFileWriter | None = None
        self._checksums: dict[str, str] = {}

    def write(self, piece: Piece) -> None:
        writer = self._writer_of(self._shards[piece.block])
        piece_end = piece.start + len(piece.values)
        for stretch in self._stretches[piece.block, piece.part]:
            begin = max(stretch.start, piece.start)
            end = min(stretch.start + stretch.length, piece_end)
            if begin < end:
                values = piece.values[begin - piece.start : end - piece.start]
                writer.write(bytes_of(values))

    def close(self) -> dict[str, str]:
        if self._writer is not None:
            self._checksums[self._writer.path.name] = self._writer.close()
        return self._checksums

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()

    def _writer_of(self, shard: Shard) -> TensorFileWriter:
        if self._writer is None or self._writer.path.name != shard.file:
            self.close()
            self._writer = TensorFileWriter(self._folder / shard.file, shard.entries)
        return self._writer


class ShardFolder:
    """A folder with tensor files. Any ValueError is one sentence: folder, file, tensor, and `advice`."""

    def __init__(self, path: Path, checksums: Mapping[str, str], advice: str) -> None:
        self._path = path
        self._checksums = checksums
        self._advice = advice

    def read(self, stem: str, stretches: Sequence[Stretch], flat_of: Callable[[Stretch], Flat]) -> None:
        """Reads every stretch into its place in the flat state that `flat_of` names."""
        wanted = {stretch.name: stretch for stretch in stretches}
        files = self.files_of(stem, {name: stretch.shape for name, stretch in wanted.items()})
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="restore") as pool:
            readings = [pool.submit(self._read, file, wanted, flat_of) for file in files]
            try:
                for reading in readings:
                    reading.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def files_of(self, stem: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[str]]:
        """The files that hold these tensors and no others, with what each holds; reads their headers."""
        held = {}
        for file in self._files(stem):
            reader = self._open(file)
            reader.close()
            for entry in reader.entries:
                self._check(file, entry, shapes)
            held[file] = [entry.name for entry in reader.entries]
        there = {name for names in held.values() for name in names}
        for name in shapes:
            if name not in there:
                raise self._damaged(f"tensor {name} is missing in {', '.join(held)}")
        return held

    def compare(self, file: str, actual: str) -> None:
        """The checksum of a file with the one that is written down for it."""
        expected = self._checksums.get(file)
        if actual != expected:
            said = "has no entry for it" if expected is None else f"says {expected[:16]}…"
            raise self._damaged(f"{file} has the sha256 checksum {actual[:16]}…, but checksums.json {said}")

    def _read(self, file: str, wanted: Mapping[str, Stretch], flat_of: Callable[[Stretch], Flat]) -> None:
        reader, buffers = self._open(file), _ReadBuffers()
        try:
            for entry in reader.entries:
                stretch = wanted[entry.name]
                flat, end = flat_of(stretch), stretch.start + stretch.length
                for start in range(stretch.start, end, _PIECE_LENGTH):
                    target = flat.part(slice(start, min(start + _PIECE_LENGTH, end)))
                    room = buffers.for_target(target)
                    reader.read_into(bytes_of(room))
                    target.write(room if room.device == target.device else room.to(target.device))
            actual = reader.sha256()
        except (OSError, ValueError) as problem:
            raise self._damaged(f"{file} cannot be read: {problem}") from None
        finally:
            reader.close()
        self.compare(file, actual)

    def _files(self, stem: str) -> list[str]:
        single, index = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
        if not (self._path / index).is_file():
            return [single]
        try:
            return sorted(set(read_weight_index(self._path / index).values()))
        except (ValueError, RecursionError) as problem:
            raise self._damaged(f"{index} cannot be read: {problem!r}") from None

    def _open(self, file: str) -> TensorFileReader:
        try:
            return TensorFileReader(self._path / file)
        except FileNotFoundError:
            raise self._damaged(f"{file} is missing") from None
        except (OSError, ValueError) as problem:
            raise self._damaged(f"{file} cannot be read: {problem}") from None

    def _check(self, file: str, entry: Entry, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if entry.name not in shapes:
            raise self._damaged(f"{file} contains tensor {entry.name}, which this model does not have")
        expected = shapes[entry.name]
        if entry.shape != expected:
            raise self._damaged(
                f"tensor {entry.name} in {file} has shape {entry.shape} instead of {expected}"
            )

    def _damaged(self, what: str) -> ValueError:
        return InputError("damaged_checkpoint", f"{self._path} is damaged: {what}; {self._advice}")


class _ReadBuffers:
    """Where bytes are read to: straight into host memory, or one of two buffers for what is elsewhere."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def for_target(self, target: Flat) -> Tensor:
        if target.device.type == "cpu" and target.encoding == "fp32":
            return target.tensors[0]
        # Two take turns: the one before is still being hashed.
        buffer = torch.empty(_PIECE_LENGTH) if len(self._buffers) < 2 else self._buffers.pop(0)
        self._buffers.append(buffer)
        return buffer[: len(target)]
