"""The documents of an upload: one document, or a .zip of a folder. Nothing is unpacked to the disk.

The sizes in the directory of an archive are claims. Reading stops at the limit, whatever they say.
"""

import unicodedata
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpubloom.datasets.documents.blocks import MOST_BYTES, Document, DocumentProblem
from gpubloom.datasets.documents.docx import MOST_RATIO, UNPACKING_ERRORS, read_docx
from gpubloom.datasets.documents.markup import read_html, read_markdown, read_text
from gpubloom.datasets.documents.pdf import read_pdf

MOST_FILES = 5_000
MOST_TOTAL_BYTES = 4 << 30
_LONGEST_NAME = 300

PARSERS: dict[str, Callable[[bytes], Document]] = {
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".txt": read_text,
}
# A single document, or an archive of several.
UPLOAD_SUFFIXES = (*PARSERS, ".zip")


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an upload by its name for people; `size` is what the archive claims."""

    name: str
    size: int
    read: Callable[[], bytes]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name.casefold()).suffix

    def parsed(self) -> Document:
        """Raises DocumentProblem with the reason."""
        parser = PARSERS.get(self.suffix)
        if parser is None:
            raise DocumentProblem(
                "document_type_unsupported",
                f"is not a supported document. Supported: {' '.join(PARSERS)}.",
            )
        content = self.read()
        if not content:
            raise DocumentProblem("document_without_text", "is empty.")
        return parser(content)


def members(path: Path, name: str) -> list[Member]:
    """The documents of an upload, in the order of their names; hidden files and folders are left out.

    An archive stays open as long as its members.
    """
    if path.suffix.casefold() != ".zip":
        return [Member(shown(name), path.stat().st_size, lambda: _bounded(path))]
    try:
        archive = zipfile.ZipFile(path)
    except UNPACKING_ERRORS:
        raise DocumentProblem(
            "archive_broken", "is not a readable .zip archive. Pack the folder again."
        ) from None
    entries = [entry for entry in archive.infolist() if not entry.is_dir() and not _hidden(entry.filename)]
    if not entries:
        raise DocumentProblem("archive_empty", "has no files in it.")
    if len(entries) > MOST_FILES:
        raise DocumentProblem(
            "archive_too_large", f"has {len(entries):,} files; the limit is {MOST_FILES:,}. Split it."
        )
    if sum(entry.file_size for entry in entries) > MOST_TOTAL_BYTES:
        raise DocumentProblem(
            "archive_too_large", f"unpacks to more than {MOST_TOTAL_BYTES / 1e9:,.1f} GB. Split it."
        )
    entries.sort(key=lambda entry: entry.filename)
    return [Member(shown(entry.filename), entry.file_size, _reader(archive, entry)) for entry in entries]


def _hidden(name: str) -> bool:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return "__MACOSX" in parts or any(part.startswith(".") and part != ".." for part in parts)


def shown(name: str) -> str:
    """A name that can be shown: relative, with / between folders, without unseen characters."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    seen = "".join(
        character
        for character in "/".join(parts)
        if unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )
    return seen if len(seen) <= _LONGEST_NAME else "…" + seen[-_LONGEST_NAME + 1 :]


def _too_large(size: int) -> DocumentProblem:
    return DocumentProblem(
        "document_too_large",
        f"has {size / 1e6:,.0f} MB; the limit for one document is {MOST_BYTES / 1e6:,.0f} MB.",
    )


def _bounded(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise _too_large(size)
    return path.read_bytes()


def _reader(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        if entry.flag_bits & 1:
            raise DocumentProblem("document_encrypted", "is encrypted in the archive. Pack it without one.")
        if entry.file_size > MOST_BYTES:
            raise _too_large(entry.file_size)
        if entry.file_size > 1 << 20 and entry.file_size > MOST_RATIO * max(1, entry.compress_size):
            raise DocumentProblem(
                "document_too_large", f"unpacks to {entry.file_size / 1e6:,.0f} MB, like a zip bomb."
            )
        try:
            with archive.open(entry) as file:
                content = file.read(MOST_BYTES + 1)
        except UNPACKING_ERRORS as problem:
            raise DocumentProblem(
                "document_broken", f"cannot be unpacked ({type(problem).__name__}). Pack it again."
            ) from None
        if len(content) > MOST_BYTES:
            raise _too_large(len(content))
        return content

    return read
