"""A tail in a bucket, where nothing can be appended to.

While a tail is small it is stored whole each time. Later only what it grew by is stored, as objects of their
own beside it (`traincard/growth/<stream>.<offset>`); once they add up to as much as the whole, the tail is
stored whole again and they go. So no byte is uploaded more than about three times, however long the run.

Only full lines leave the machine, because a writer may take a torn one back. What is stored never has a gap:
a reader that finds part of the growth has a shorter tail, not a damaged one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO

from gpubloom.traincard.mirror.store import Bucket
from gpubloom.traincard.stream import parse_start

# Where the bucket keeps what a tail grew by.
GROWTH = "traincard/growth/"
_SMALL_BYTES = 256 << 10
_MOST_PIECES = 500


@dataclass
class StoredTail:
    """What the bucket holds of a tail: `whole` bytes in its own object, the rest in pieces."""

    stream: str
    whole: int = 0
    pieces: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.whole + sum(self.pieces.values())

    def names(self) -> list[str]:
        return [piece_name(self.stream, offset) for offset in self.pieces]


def send(
    bucket: Bucket, name: str, file: IO[bytes], stored: StoredTail | None, exact: bool
) -> StoredTail | None:
    """Stores what is new in an open tail. `exact`: in one object, with a torn last line: the run is over."""
    found = parse_start(file.readline())
    if found is None:
        return stored
    stream = str(found[0])
    old_pieces: list[str] = []
    if stored is None or stored.stream != stream:
        # What was here before is sealed, and stored under that name.
        old_pieces = stored.names() if stored else []
        stored = StoredTail(stream)
    offset = stored.size
    file.seek(offset)
    new = file.read()
    if not exact:
        new = new[: new.rfind(b"\n") + 1]
    if not new and not (exact and stored.pieces):
        return stored
    grown = stored.size - stored.whole + len(new)
    if (
        exact
        or offset + len(new) <= _SMALL_BYTES
        or grown >= stored.whole
        or len(stored.pieces) >= _MOST_PIECES
    ):
        file.seek(0)
        whole = file.read(offset + len(new))
        bucket.put(name, whole)
        bucket.delete(stored.names() + old_pieces)
        return StoredTail(stream, len(whole))
    bucket.put(piece_name(stream, offset), new)
    stored.pieces[offset] = len(new)
    return stored


def found_in(bucket: Bucket, name: str, size: int, pieces: Iterable[tuple[str, int]]) -> StoredTail | None:
    """What an earlier mirror stored of a tail; None when that cannot be made out."""
    start = parse_start(bucket.first_line(name))
    if start is None:
        return None
    stored = StoredTail(str(start[0]), size)
    mine = sorted((offset_of(path), length) for path, length in pieces if stream_of(path) == stored.stream)
    for offset, length in mine:
        if offset == stored.size:
            stored.pieces[offset] = length
    return stored


def piece_name(stream: str, offset: int) -> str:
    return f"{GROWTH}{stream}.{offset:012d}"


def stream_of(piece: str) -> str:
    return piece.removeprefix(GROWTH).rpartition(".")[0]


def offset_of(piece: str) -> int:
    offset = piece.rpartition(".")[2]
    return int(offset) if offset.isdecimal() else -1
