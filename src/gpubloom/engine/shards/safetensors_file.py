"""One safetensors file of tensors of one type, written or read from front to back with its sha256.

The format: eight bytes that say how long the header is, the header (JSON: name, type, shape and place of each
tensor), then the tensors' bytes without gaps. Hashing runs beside the disk, so the slower of the two counts.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gpubloom.errors import InputError
from gpubloom.plan.safetensors_header import LENGTH_BYTES, LONGEST_HEADER

_FLOAT_BYTES = 4
_TYPE = "F32"


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: where its bytes lie after the header."""

    name: str
    shape: tuple[int, ...]
    begin: int
    end: int


def bytes_of(values: Tensor) -> memoryview:
    """The bytes of a tensor in host memory, not a copy of them."""
    return values.numpy().data.cast("B")


def entries(tensors: Sequence[tuple[str, tuple[int, ...]]], item_bytes: int = _FLOAT_BYTES) -> list[Entry]:
    """Tensors laid end to end in the order given."""
    found, begin = [], 0
    for name, shape in tensors:
        end = begin + item_bytes * math.prod(shape)
        found.append(Entry(name, shape, begin, end))
        begin = end
    return found


class TensorFileWriter:
    """Bytes go in from front to back; `close` says what their sha256 is once they are safely on disk."""

    def __init__(self, path: Path, contents: Sequence[Entry], type_name: str = _TYPE) -> None:
        self.path = path
        self._expected = contents[-1].end if contents else 0
        self._written = 0
        self._sha256 = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="checksum")
        self._file = path.open("wb", buffering=0)
        self._put(memoryview(_header(contents, type_name)))

    def write(self, data: memoryview) -> None:
        self._put(data)
        self._written += len(data)

    def close(self) -> str:
        assert self._written == self._expected, f"{self.path.name} got {self._written} bytes"
        os.fsync(self._file.fileno())
        self.discard()
        return self._sha256.hexdigest()

    def discard(self) -> None:
        """Without waiting for the disk: the file will not be used."""
        self._file.close()
        self._hasher.shutdown()

    def _put(self, data: memoryview) -> None:
        hashed = self._hasher.submit(self._sha256.update, data)
        try:
            position = 0
            while position < len(data):
                position += self._file.write(data[position:]) or 0
        finally:
            # The bytes may be overwritten as soon as this returns.
            hashed.result()


class TensorFileReader:
    """Reads from front to back; `sha256` is that of the whole file once all of it was read."""

    def __init__(self, path: Path) -> None:
        """ValueError says in a few words what is wrong with the header."""
        self.path = path
        self._sha256 = hashlib.sha256()
        self._file = path.open("rb", buffering=0)
        try:
            self.entries = self._read_header(path.stat().st_size)
        except ValueError:
            self._file.close()
            raise
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="checksum")
        self._hashed: Future[None] | None = None

    def read_into(self, room: memoryview) -> None:
        """The next bytes. They must stay as they are until the bytes after them were read."""
        position = 0
        while position < len(room):
            count = self._file.readinto(room[position:])
            if not count:
                raise InputError("invalid_safetensors", "the file ends too early")
            position += count
        self._wait_for_hash()
        self._hashed = self._hasher.submit(self._sha256.update, room)

    def sha256(self) -> str:
        self._wait_for_hash()
        return self._sha256.hexdigest()

    def close(self) -> None:
        self._file.close()
        self._hasher.shutdown()

    def _wait_for_hash(self) -> None:
        if self._hashed is not None:
            self._hashed.result()

    def _read_header(self, file_bytes: int) -> list[Entry]:
        first = self._file.read(LENGTH_BYTES)
        length = int.from_bytes(first, "little")
        if len(first) < LENGTH_BYTES or length > min(LONGEST_HEADER, file_bytes - LENGTH_BYTES):
            raise InputError("invalid_safetensors", "the file ends within its header")
        header = self._file.read(length)
        self._sha256.update(first + header)
        try:
            described = json.loads(header)
            described.pop("__metadata__", None)
            found = sorted(_parsed(described), key=lambda entry: entry.begin)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise InputError("invalid_safetensors", f"the header cannot be read ({problem})") from None
        end = 0
        for entry in found:
            if entry.begin != end or entry.end - entry.begin != _FLOAT_BYTES * math.prod(entry.shape):
                raise InputError(
                    "invalid_safetensors", f"the header has invalid offsets for tensor {entry.name}"
                )
            end = entry.end
        if LENGTH_BYTES + length + end != file_bytes:
            raise InputError(
                "invalid_safetensors",
                f"the file has {file_bytes:,} bytes instead of {LENGTH_BYTES + length + end:,}",
            )
        return found


def _header(contents: Sequence[Entry], type_name: str) -> bytes:
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for entry in contents:
        described[entry.name] = {
            "dtype": type_name,
            "shape": list(entry.shape),
            "data_offsets": [entry.begin, entry.end],
        }
    text = json.dumps(described, separators=(",", ":")).encode()
    # Readers map the file; tensors then begin where any element may begin.
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _parsed(described: dict[str, Any]) -> Iterator[Entry]:
    for name, tensor in described.items():
        if tensor["dtype"] != _TYPE:
            raise InputError("invalid_safetensors", f"tensor {name} is {tensor['dtype']} instead of {_TYPE}")
        begin, end = tensor["data_offsets"]
        yield Entry(name, tuple(int(size) for size in tensor["shape"]), int(begin), int(end))
