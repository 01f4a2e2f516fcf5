"""Compressed files of rows, read as a stream: chats.jsonl.gz, chats.csv.zst, or a .zip with one data file.

Nothing is unpacked to a disk. Readers hold one row at a time, as with any file, so what a small file unpacks
to costs time, which a confined process has little of, and no memory.
"""

import gzip
import io
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from gpubloom.datasets.problems import NotADataset

COMPRESSED = (".gz", ".zst", ".zip")
TEXT_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt")
# A .zip says inside what it holds.
COMPRESSED_SUFFIXES = (*(f"{inner}{outer}" for outer in COMPRESSED for inner in TEXT_SUFFIXES), ".zip")

_BROKEN = (EOFError, OSError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in COMPRESSED


def inner_suffix(path: Path) -> str:
    """The ending that says how rows are read: of the data, not of its compression."""
    outer = path.suffix.lower()
    if outer not in COMPRESSED:
        return outer
    if outer == ".zip":
        with _zip(path) as archive:
            return PurePosixPath(_member(archive, path).filename).suffix.lower()
    return Path(path.stem).suffix.lower()


def open_bytes(path: Path, buffering: int = -1) -> BinaryIO:
    """The bytes of the data, wherever a seek leads; NotADataset when an archive is broken."""
    match path.suffix.lower():
        case ".gz":
            return _Checked(lambda: cast("BinaryIO", gzip.open(path, "rb")), path.name)
        case ".zst":
            return _Checked(lambda: _zstd(path), path.name)
        case ".zip":
            return _Checked(lambda: _zip_member(path), path.name)
        case _:
            return path.open("rb", buffering=buffering)


def _zstd(path: Path) -> BinaryIO:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise NotADataset(
            "not_installed",
            "Reading .zst files needs pyarrow, which is not installed. Run: pip install 'gpubloom[data]'",
        ) from None
    return cast("BinaryIO", pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd"))


def _zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError):
        raise NotADataset("archive_file", f"{path.name} is not a valid zip archive.") from None


def _member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """The one data file of an archive; what systems and authors put beside it does not count."""
    found = [
        each
        for each in archive.infolist()
        if not each.is_dir()
        and PurePosixPath(each.filename).suffix.lower() in TEXT_SUFFIXES
        and not PurePosixPath(each.filename).name.startswith(".")
        and not PurePosixPath(each.filename).name.lower().startswith(("readme", "license", "licence"))
        and not each.filename.startswith("__MACOSX/")
    ]
    if len(found) != 1:
        raise NotADataset(
            "archive_file",
            f"{path.name} contains {len(found)} data files ({', '.join(TEXT_SUFFIXES)}) instead of one. "
            "Put one file into the archive, or use the files without an archive.",
        )
    if found[0].flag_bits & 1:
        raise NotADataset("archive_file", f"{path.name} is encrypted. Remove its password first.")
    return found[0]


def _zip_member(path: Path) -> BinaryIO:
    archive = _zip(path)
    return cast("BinaryIO", archive.open(_member(archive, path)))


class _Checked(io.BufferedIOBase, BinaryIO):
    """A stream that seeks by reading on, or by beginning again, and names the file when it is broken."""

    def __init__(self, begin: Any, name: str) -> None:
        self._begin, self._name = begin, name
        self._raw: Any = None
        self._file = self._opened()
        self._at = 0

    def _opened(self) -> io.BufferedReader:
        try:
            self._raw = self._begin()
        except _BROKEN as problem:
            raise self._broken(problem) from None
        return io.BufferedReader(_Raw(self._raw), 1 << 18)

    def _broken(self, problem: BaseException) -> NotADataset:
        return NotADataset("archive_file", f"{self._name} cannot be unpacked: {problem}.")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._taken(lambda: self._file.read(-1 if size is None else size))

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._taken(lambda: self._file.readline(-1 if size is None else size))

    def _taken(self, take: Any) -> bytes:
        try:
            content: bytes = take()
        except _BROKEN as problem:
            raise self._broken(problem) from None
        self._at += len(content)
        return content

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        assert whence == io.SEEK_SET, "readers know where rows begin"
        if offset < self._at:
            self._file.close()
            self._file, self._at = self._opened(), 0
        while self._at < offset and self.read(min(1 << 20, offset - self._at)):
            pass
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._raw.close()
        super().close()


class _Raw(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
