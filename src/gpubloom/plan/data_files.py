"""The files of a run's data: which files a path means, which of them are read, about how many tokens they
hold, and the demo's files.

Training chooses its files here too, so what a plan counts is what a run reads. A plan reads texts once, so
that it refuses what training refuses; of more than a gibibyte it reads the beginnings, and of token files
and files of rows only the size.
"""

import codecs
import glob
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from gpubloom.errors import InputError
from gpubloom.plan.data_config import DataConfig

# English and code under a BPE of a few thousand tokens; only used to predict how long a run takes.
_BYTES_PER_BPE_TOKEN = 3.5
_SNIFFED_BYTES = 8_192
_BLOCK_BYTES = 1 << 20
# Of text: reading so much takes a second, and a form asks for its plan after every change.
_READ_BYTES = 1 << 30
_REMEMBERED_FILES = 20_000
_PACKED = (".parquet", ".gz", ".zst", ".zip")
# The same of text in such a file.
_BYTES_PER_PACKED_TOKEN = 1.5
# What libraries read beside or instead of a tokenizer.json; it is saved with whatever is trained.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)

Read = TypeVar("Read")


def find_files(path: str) -> list[Path]:
    """The files behind a file, folder or glob, sorted by name; hidden files and folders are left out."""
    root = Path(path).expanduser()
    if root.is_file():
        return [root]
    if root.is_dir():
        return sorted(file for file in root.rglob("*") if file.is_file() and not _hidden(file, root))
    if any(character in path for character in "*?["):
        matches = (Path(match) for match in glob.glob(str(root), recursive=True))  # noqa: PTH207 - a pattern may be absolute
        if files := sorted(match for match in matches if match.is_file()):
            return files
        raise InputError("data_not_found", f"No file matches {path}.")
    raise InputError(
        "data_not_found", f"The file or folder {path} does not exist: restore it, or choose other data."
    )


def find_token_files(path: str) -> list[Path] | None:
    """The binary token files behind a path, or None when it means text."""
    files = find_files(path)
    # Among text, a .bin file is most likely something else: it is passed over like any other binary.
    return files if files and all(file.suffix == ".bin" for file in files) else None


def read_text_files(path: str, read: Callable[[Path], Read]) -> tuple[list[Read], list[Path]]:
    """What `read` makes of the text files behind a path, and the files that are passed over.

    A file named by itself must be text; in a folder, others are passed over. `read` raises ValueError for a
    file that is not text, and returns something false for an empty one.
    """
    files = find_files(path)
    named = len(files) == 1 and files[0] == Path(path).expanduser()
    found: list[Read] = []
    skipped: list[Path] = []
    for file in files:
        try:
            text = read(file)
        except ValueError:
            if named:
                raise
            skipped.append(file)
        else:
            if text:
                found.append(text)
    if not found:
        if named:
            raise InputError("data_empty", f"{path} is empty: there is nothing to train on.")
        raise InputError(
            "data_without_text",
            f"{path} contains no text: none of its {len(files)} files is non-empty UTF-8 text.",
        )
    return found, skipped


def text_of(file: Path) -> Iterator[str]:
    """The text of a file, piece by piece. InputError when it cannot be read or is not UTF-8 text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    try:
        with file.open("rb") as opened:
            while True:
                block = opened.read(_BLOCK_BYTES)
                if offset == 0:
                    _must_begin_as_text(file, block)
                offset -= len(decoder.getstate()[0])
                piece = decoder.decode(block, final=not block)
                # Windows puts a byte order mark before its UTF-8. It is not part of the text.
                yield piece.removeprefix("\ufeff") if offset == 0 else piece
                if not block:
                    return
                offset = opened.tell()
    except OSError as problem:
        raise InputError("unreadable_file", f"{file} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        raise InputError(
            "not_utf8",
            f"{file} is not UTF-8 text (byte {offset + problem.start:,} is "
            f"0x{problem.object[problem.start]:02x}); convert the file to UTF-8, for example with iconv.",
        ) from None


def _must_begin_as_text(file: Path, content: bytes) -> None:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(
            "not_utf8", f"{file} is UTF-16 text; convert the file to UTF-8, for example with iconv."
        )
    if b"\0" in content[:_SNIFFED_BYTES]:
        raise InputError(
            "binary_file", f"{file} is a binary file, not text; the name of a token file must end with .bin."
        )


def find_tokenizer_files(path: str) -> list[Path]:
    """The files that a run reads for a tokenizer path: those behind it, and those beside a single file."""
    files = find_files(path)
    neighbours = (Path(path).expanduser().with_name(name) for name in TOKENIZER_FILES)
    return files + [file for file in neighbours if file.is_file() and file not in files]


def estimate_tokens(data: DataConfig) -> int | None:
    """Training tokens of one epoch, roughly; None without a path, and for an address: nobody has looked."""
    if data.train_path is None or "://" in data.train_path:
        return None
    if data.eval_path and "://" not in data.eval_path:
        # Training refuses it too.
        _tokens_at(data.eval_path, data)
    tokens = data.weight * _tokens_at(data.train_path, data)
    tokens += sum(each.weight * _tokens_at(each.path, data) for each in data.mix)
    return int(tokens if data.eval_path else tokens * (1 - data.eval_fraction))


def _tokens_at(path: str, data: DataConfig) -> float:
    files = find_files(path)
    total = sum(file.stat().st_size for file in files)
    # Said before a process with torch is started to find it out.
    if total == 0:
        raise InputError("data_empty", f"{path} is empty: there is nothing to train on.")
    if data.kind == "examples":
        return sum(
            file.stat().st_size
            / (_BYTES_PER_PACKED_TOKEN if file.suffix in _PACKED else _BYTES_PER_BPE_TOKEN)
            for file in files
        )
    if (token_files := find_token_files(path)) is not None:
        return sum(file.stat().st_size for file in token_files) / {"uint16": 2, "uint32": 4}[data.token_dtype]
    size = sum(read_text_files(path, partial(_text_size, whole=total <= _READ_BYTES))[0])
    return size if data.tokenizer.kind == "bytes" else size / _BYTES_PER_BPE_TOKEN


def _text_size(file: Path, *, whole: bool) -> int:
    """Bytes of a file of text, 0 of one that holds none."""
    facts = file.stat()
    return facts.st_size if _holds_text(file, facts.st_size, facts.st_mtime_ns, whole) else 0


@lru_cache(_REMEMBERED_FILES)
def _holds_text(file: Path, size: int, changed_ns: int, whole: bool) -> bool:
    """InputError when what is read of the file is not text. Read again only when the file has changed."""
    return sum(map(len, islice(text_of(file), None if whole else 1))) > 0


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in file.relative_to(root).parts)


def demo_fields(said: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Fields of a TrainConfig: about a minute on two free CPU cores, on Python's own sources.

    Rate and batch suit the small model of the demo; what is said about a model or a method has its own.
    """
    fields: dict[str, Any] = {
        "name": "demo",
        "max_steps": 450,
        "eval": {"every_steps": 100},
        "data": {"train_path": str(Path(sysconfig.get_path("stdlib")) / "*.py")},
    }
    if said.get("model") or said.get("method"):
        return fields
    return {**fields, "batch_size": 16, "learning_rate": 3e-3}
