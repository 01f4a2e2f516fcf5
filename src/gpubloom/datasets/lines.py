"""Lines of a file as bytes, with number and offset, holding one line at a time and never a longer one
than a row may be.

Lines end at the line feed of the file's encoding and nowhere else, so offsets are exact in UTF-16 too.
"""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from gpubloom.datasets.encodings import Encoding
from gpubloom.datasets.problems import RowProblem

# Four million tokens: no context holds more, and memory stays bounded.
LONGEST_ROW_BYTES = 16 << 20
_PIECE = 1 << 20
_SHOWN_BYTES = 400


class Line(NamedTuple):
    """One line with its end; `content` is only its beginning when the line is too long to be a row."""

    number: int
    offset: int
    size: int
    content: bytes

    @property
    def is_whole(self) -> bool:
        return self.size == len(self.content)

    def text(self, encoding: Encoding) -> str:
        """The line decoded, with its end."""
        if not self.is_whole:
            raise RowProblem("row_too_long", too_long(self.size))
        try:
            return self.content.decode(encoding.codec)
        except UnicodeDecodeError as problem:
            raise RowProblem(
                "row_invalid_text",
                f"is not valid {encoding.codec.upper()} at byte {problem.start + 1} ({problem.reason})",
            ) from None

    def beginning(self, encoding: Encoding) -> str:
        """What can be shown of a line that cannot be read."""
        return self.content[:_SHOWN_BYTES].decode(encoding.codec, "replace").rstrip("\r\n")


def too_long(size: int) -> str:
    return f"is {size / 1e6:,.1f} MB long, above the limit of {LONGEST_ROW_BYTES / 1e6:,.1f} MB per row"


def read_lines(file: BinaryIO, encoding: Encoding, *, offset: int, number: int) -> Iterator[Line]:
    """Lines from an offset on, the first of which has the given number."""
    file.seek(offset)
    read = _read_wide_line if encoding.is_wide else _read_line
    little = encoding.codec.endswith("le")
    while True:
        content, size = read(file, little)
        if size == 0:
            return
        yield Line(number, offset, size, content)
        number += 1
        offset += size


def _read_line(file: BinaryIO, _little: bool) -> tuple[bytes, int]:
    content = file.readline(LONGEST_ROW_BYTES + 1)
    size = len(content)
    if size <= LONGEST_ROW_BYTES:
        return content, size
    last = content[-1:]
    while last != b"\n":
        piece = file.readline(_PIECE)
        if not piece:
            break
        size += len(piece)
        last = piece[-1:]
    return content[:_SHOWN_BYTES], size


def _read_wide_line(file: BinaryIO, little: bool) -> tuple[bytes, int]:
    content = bytearray()
    size = 0
    while piece := file.readline(_PIECE):
        before = content[-1:] if size else b""
        size += len(piece)
        ended = False
        if piece.endswith(b"\n"):
            if little and size % 2 == 1:
                # A line feed is 0A 00 here; the 00 stands behind what readline gave.
                rest = file.read(1)
                piece += rest
                size += len(rest)
                ended = rest in {b"\0", b""}
            elif not little and size % 2 == 0:
                ended = (before + piece)[-2:-1] == b"\0"
        if len(content) <= LONGEST_ROW_BYTES:
            content += piece
        else:
            content[-1:] = piece[-1:]
        if ended:
            break
    if size <= LONGEST_ROW_BYTES:
        return bytes(content), size
    return bytes(content[:_SHOWN_BYTES]), size
