"""From files into the blocks, piece by piece, wherever the blocks live. Which file holds what, the files say.

All headers are checked before the first value is read; checksums are compared while reading.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from gpubloom.engine.shards.sharding import Stretch
from gpubloom.engine.shards.tensor_file import Entry, TensorFileReader, bytes_of
from gpubloom.hub.weight_index import read_weight_index

_PIECE_LENGTH = 8 << 20
# One core hashes more slowly than a disk reads.
_FILES_AT_ONCE = 4


class ShardFolder:
    """A folder with tensor files. Any ValueError is one sentence: folder, file, tensor, and `advice`."""

    def __init__(self, path: Path, checksums: Mapping[str, str], advice: str) -> None:
        self._path = path
        self._checksums = checksums
        self._advice = advice

    def read(self, stem: str, stretches: Sequence[Stretch], flat_of: Callable[[Stretch], Tensor]) -> None:
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
                raise self._damaged(f"tensor {name} is not in {' or '.join(held)}")
        return held

    def compare(self, file: str, actual: str) -> None:
        """The checksum of a file with the one that is written down for it."""
        expected = self._checksums.get(file)
        if actual != expected:
            said = "does not name it" if expected is None else f"says {expected[:16]}…"
            raise self._damaged(f"{file} has the sha256 checksum {actual[:16]}…, but checksums.json {said}")

    def _read(self, file: str, wanted: Mapping[str, Stretch], flat_of: Callable[[Stretch], Tensor]) -> None:
        reader, buffers = self._open(file), _ReadBuffers()
        try:
            for entry in reader.entries:
                stretch = wanted[entry.name]
                flat = flat_of(stretch)[stretch.start : stretch.start + stretch.length]
                for target in torch.split(flat, _PIECE_LENGTH):
                    room = buffers.for_target(target)
                    reader.read_into(bytes_of(room))
                    if room is not target:
                        target.copy_(room)
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
            raise self._damaged(f"{file} holds tensor {entry.name}, which this model does not have")
        expected = shapes[entry.name]
        if entry.shape != expected:
            raise self._damaged(
                f"tensor {entry.name} in {file} has shape {entry.shape} instead of {expected}"
            )

    def _damaged(self, what: str) -> ValueError:
        return ValueError(f"{self._path} is damaged: {what}; {self._advice}")


class _ReadBuffers:
    """Where bytes are read to: straight into host memory, or into one of two buffers for a device."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def for_target(self, target: Tensor) -> Tensor:
        if target.device.type == "cpu":
            return target
        # Two take turns: the one before is still being hashed.
        buffer = torch.empty(_PIECE_LENGTH) if len(self._buffers) < 2 else self._buffers.pop(0)
        self._buffers.append(buffer)
        return buffer[: len(target)]
