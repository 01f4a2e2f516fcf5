"""A folder's files as one tar archive that is never made: any byte range of it can be computed.

Weights do not compress, so a plain tar costs nothing; and because its every byte is known beforehand, a
broken download continues where it stopped (HTTP Range).
"""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpubloom.server.jobs.files import FoundFile

_BLOCK = 512
_END = b"\0" * (2 * _BLOCK)
_PIECE = 1 << 18


@dataclass(frozen=True)
class _Part:
    """Some bytes of the archive: given ones, or a file's."""

    size: int
    content: bytes | None = None
    file: FoundFile | None = None


class TarView:
    """The archive of some files under one folder name."""

    def __init__(self, files: Sequence[FoundFile], folder: str) -> None:
        self._parts: list[_Part] = []
        for file in files:
            header = tarfile.TarInfo(f"{folder}/{file.name}")
            header.size = file.size
            header.mode = 0o644
            header.mtime = int(file.path.lstat().st_mtime)
            content = header.tobuf(format=tarfile.PAX_FORMAT)
            self._parts.append(_Part(len(content), content=content))
            self._parts.append(_Part(file.size, file=file))
            padding = -file.size % _BLOCK
            self._parts.append(_Part(padding, content=b"\0" * padding))
        self._parts.append(_Part(len(_END), content=_END))
        self.size = sum(part.size for part in self._parts)

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to `end`, in pieces."""
        position = 0
        for part in self._parts:
            first, last = max(start - position, 0), min(end - position, part.size)
            position += part.size
            if first >= last:
                continue
            if part.content is not None:
                yield part.content[first:last]
            elif part.file is not None:
                yield from read_file(part.file, first, last)


def read_file(found: FoundFile, first: int, last: int) -> Iterator[bytes]:
    """Some bytes of a file, in pieces."""
    with found.open() as file:
        file.seek(first)
        left = last - first
        while left > 0:
            piece = file.read(min(_PIECE, left))
            if not piece:
                raise OSError(f"{found.name} became shorter while it was sent")
            left -= len(piece)
            yield piece
