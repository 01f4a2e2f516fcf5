"""Reads text a person points at, and says in one sentence why something is not text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubloom.plan import find_files

_SNIFFED_BYTES = 8_192


@dataclass(frozen=True)
class Texts:
    """Documents in a fixed order, and the files of a folder that were passed over."""

    documents: tuple[str, ...]
    skipped: tuple[Path, ...]


def read_texts(path: str, files: Sequence[Path]) -> Texts:
    """The documents behind a path. A file named by itself must be text; in a folder, others are skipped."""
    named = len(files) == 1 and files[0] == Path(path).expanduser()
    documents: list[str] = []
    skipped: list[Path] = []
    for file in files:
        try:
            document = _read(file)
        except ValueError:
            if named:
                raise
            skipped.append(file)
        else:
            if document:
                documents.append(document)
    if not documents:
        if named:
            raise ValueError(f"{path} is empty: there is nothing to train on.")
        raise ValueError(
            f"{path} holds no text: of its {len(files)} files none is UTF-8 text with something in it."
        )
    return Texts(tuple(documents), tuple(skipped))


def only_tokens(path: str) -> list[Path] | None:
    """The binary token files behind a path, or None when it means text."""
    files = find_files(path)
    tokens = [file for file in files if file.suffix == ".bin"]
    if tokens and len(tokens) == len(files):
        return tokens
    # Among text, a .bin file is most likely something else: it is passed over like any other binary.
    return None


def _read(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise ValueError(f"{file} cannot be read: {problem.strerror}.") from None
    if b"\0" in content[:_SNIFFED_BYTES]:
        raise ValueError(f"{file} is a binary file, not text; token files must be named .bin.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"{file} is not UTF-8 text (byte {problem.start:,} is 0x{content[problem.start]:02x}); "
            "convert it first, for example with iconv."
        ) from None
