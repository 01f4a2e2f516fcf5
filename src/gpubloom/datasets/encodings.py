"""Which encoding a text file has, and which files are no text at all, by their first bytes.

An archive under the name of something else is recognised by its signature and refused.
"""

import codecs
from dataclasses import dataclass
from pathlib import Path

from gpubloom.datasets.compression import open_bytes
from gpubloom.datasets.problems import NotADataset

SNIFFED_BYTES = 1 << 20

_PACKED = {
    b"PK\x03\x04": "a zip archive (or an Excel workbook)",
    b"PK\x05\x06": "an empty zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\x04\x22\x4d\x18": "an lz4 archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a rar archive",
}
_OTHER = {
    b"%PDF-": "a PDF document",
    b"SQLite format 3\x00": "a SQLite database",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"\x7fELF": "an executable program",
    b"ARROW1": "an Arrow file",
}
PARQUET = b"PAR1"

# The name that a person writes to the codec that decodes one line.
NAMES = {
    "utf-8": "utf-8",
    "utf-16": "utf-16-le",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "windows-1252": "cp1252",
    "cp1252": "cp1252",
    "latin-1": "latin-1",
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How to decode a line, how long the byte order mark is, and what a person should know about it."""

    codec: str
    mark: int = 0
    note: str | None = None
    is_guess: bool = False

    @property
    def is_wide(self) -> bool:
        return self.codec.startswith("utf-16")


def find_encoding(path: Path, wanted: str | None = None) -> Encoding:
    """The encoding of a text file; refuses what is no text."""
    with open_bytes(path) as file:
        head = file.read(SNIFFED_BYTES)
    _refuse_other_files(path, head)
    marked = _by_mark(head)
    if wanted is not None:
        return _as_wanted(wanted, marked)
    if marked is not None:
        return marked
    if b"\0" in head and (guess := _unmarked_wide(head)) is not None:
        return guess
    if b"\0" in head:
        raise NotADataset(
            "binary_file",
            f"{path.name} contains NUL bytes, so it is a binary file or UTF-16 without a byte order mark. "
            "Save the file as UTF-8, or set its encoding (utf-16-le, utf-16-be).",
        )
    return _utf8_or_windows(head)


def _refuse_other_files(path: Path, head: bytes) -> None:
    for signature, what in _PACKED.items():
        if head.startswith(signature):
            raise NotADataset(
                "archive_file", f"{path.name} is {what}, not {path.suffix} data. Unpack the file first."
            )
    for signature, what in _OTHER.items():
        if head.startswith(signature):
            raise NotADataset("archive_file", f"{path.name} is {what}, not {path.suffix} data.")
    if head[257:262] == b"ustar":
        raise NotADataset(
            "archive_file", f"{path.name} is a tar archive, not {path.suffix} data. Unpack the file first."
        )
    if head.startswith(PARQUET):
        raise NotADataset(
            "wrong_suffix", f"{path.name} is a parquet file: rename it so that it ends with .parquet."
        )


def _by_mark(head: bytes) -> Encoding | None:
    if head.startswith(codecs.BOM_UTF8):
        return Encoding("utf-8", 3)
    # UTF-32's little-endian mark begins with UTF-16's.
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise NotADataset(
            "unknown_encoding", "The file is UTF-32, which is not supported. Save the file as UTF-8."
        )
    if head.startswith(codecs.BOM_UTF16_LE):
        return Encoding(
            "utf-16-le", 2, "The file is UTF-16 (little endian) according to its byte order mark."
        )
    if head.startswith(codecs.BOM_UTF16_BE):
        return Encoding("utf-16-be", 2, "The file is UTF-16 (big endian) according to its byte order mark.")
    return None


def _unmarked_wide(head: bytes) -> Encoding | None:
    """UTF-16 without a byte order mark, where nearly every other byte is zero, as in most languages of
    Europe. Others have to be named."""
    pairs = len(head) // 2
    if pairs < 16:
        return None
    for codec, name, zeros, others in (
        ("utf-16-le", "little endian", head[1 : 2 * pairs : 2], head[0 : 2 * pairs : 2]),
        ("utf-16-be", "big endian", head[0 : 2 * pairs : 2], head[1 : 2 * pairs : 2]),
    ):
        if zeros.count(0) > 0.9 * pairs and others.count(0) == 0:
            note = f"The file looks like UTF-16 ({name}) without a byte order mark."
            return Encoding(codec, 0, note)
    return None


def _as_wanted(wanted: str, marked: Encoding | None) -> Encoding:
    codec = NAMES.get(wanted.lower().replace("_", "-"))
    if codec is None:
        raise NotADataset(
            "unknown_encoding",
            f"The encoding {wanted!r} is not supported. Choose one of {', '.join(NAMES)}.",
        )
    if marked is not None and (marked.codec == codec or wanted.lower() == "utf-16"):
        return marked
    return Encoding(codec)


def _utf8_or_windows(head: bytes) -> Encoding:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as problem:
        # A character may be cut by the end of the sample.
        if problem.end == len(head) and len(head) - problem.start < 4 and len(head) == SNIFFED_BYTES:
            return Encoding("utf-8")
    else:
        return Encoding("utf-8")
    characters = head.decode("utf-8", "surrogateescape")
    broken = sum("\udc80" <= character <= "\udcff" for character in characters)
    whole = sum(character > "\x7f" for character in characters) - broken
    if whole > broken:
        # Mostly UTF-8: another encoding would garble every good line for the sake of a bad one.
        return Encoding(
            "utf-8",
            0,
            "The file is UTF-8 with some invalid characters; their lines are reported as problems.",
        )
    try:
        # Quotes and dashes of Windows are where Latin-1 has signs that no text contains. Five bytes mean
        # nothing there, and then it is no such file.
        head.decode("cp1252")
    except UnicodeDecodeError:
        name, codec = "Latin-1", "latin-1"
    else:
        name, codec = "Windows-1252", "cp1252"
    return Encoding(
        codec,
        0,
        f"The file is not UTF-8, so it is read as {name}: check the accented letters in the preview.",
        is_guess=True,
    )
