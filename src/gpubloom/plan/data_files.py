"""The files of a run's data: which files a path means, about how many tokens they hold, and the demo's files.

Looks at names and sizes only.
"""

import glob
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.plan.data_config import DataConfig

# English and code under a BPE of a few thousand tokens; only used to predict how long a run takes.
_BYTES_PER_BPE_TOKEN = 3.5
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


def find_tokenizer_files(path: str) -> list[Path]:
    """The files that a run reads for a tokenizer path: those behind it, and those beside a single file."""
    files = find_files(path)
    neighbours = (Path(path).expanduser().with_name(name) for name in TOKENIZER_FILES)
    return files + [file for file in neighbours if file.is_file() and file not in files]


def estimate_tokens(data: DataConfig) -> int | None:
    """Training tokens of one epoch, roughly; None without a path, and for an address: nobody has looked."""
    if data.train_path is None or "://" in data.train_path:
        return None
    tokens = data.weight * _tokens_at(data.train_path, data)
    tokens += sum(each.weight * _tokens_at(each.path, data) for each in data.mix)
    return int(tokens if data.eval_path else tokens * (1 - data.eval_fraction))


def _tokens_at(path: str, data: DataConfig) -> float:
    files = find_files(path)
    # Said before a process with torch is started to find it out.
    if not any(file.stat().st_size for file in files):
        raise InputError("data_empty", f"{path} is empty: there is nothing to train on.")
    tokens = 0.0
    for file in files:
        size = file.stat().st_size
        if data.kind == "examples":
            tokens += size / (_BYTES_PER_PACKED_TOKEN if file.suffix in _PACKED else _BYTES_PER_BPE_TOKEN)
        elif file.suffix == ".bin":
            tokens += size / {"uint16": 2, "uint32": 4}[data.token_dtype]
        else:
            tokens += size if data.tokenizer.kind == "bytes" else size / _BYTES_PER_BPE_TOKEN
    return tokens


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
