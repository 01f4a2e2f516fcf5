"""Tokenized examples on disk: written as they are read, mapped into memory afterwards, kept for a resume.

A folder holds both sides of the split and examples.json, and is complete or absent. Its key says what it was
made from; under another key it is made again.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpubloom.engine.data.packing import Examples
from gpubloom.engine.shards.whole_folder import complete_or_absent

_INDEX = "examples.json"
_TOKENS, _TRAINED, _LENGTHS = np.dtype("<u4"), np.dtype(np.bool_), np.dtype("<u4")


@dataclass(frozen=True)
class Findings:
    """What is known about the examples besides their tokens."""

    notes: tuple[str, ...]
    # The token that closes what the model writes, where all conversations agree on one.
    turn_end: int | None
    # Of the file that is trained on: rows that became examples, and rows that there are.
    rows_used: int
    rows_total: int


class ExampleWriter:
    """Appends examples to the files of one side."""

    def __init__(self, folder: Path, side: str) -> None:
        self._files = [(folder / f"{side}.{name}").open("wb") for name in ("tokens", "trained", "lengths")]
        self.count = 0

    def add(self, ids: Sequence[int], trained: Sequence[bool]) -> None:
        columns: list[npt.NDArray[Any]] = [
            np.asarray(ids, dtype=_TOKENS),
            np.asarray(trained, dtype=_TRAINED),
            np.asarray([len(ids)], dtype=_LENGTHS),
        ]
        for file, column in zip(self._files, columns, strict=True):
            file.write(column.tobytes())
        self.count += 1

    def __enter__(self) -> "ExampleWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


Sides = dict[str, Examples]


def kept_examples(folder: Path | None, key: str, make: Callable[[Path], Findings]) -> tuple[Sides, Findings]:
    """The examples of a folder, made there unless they are. Without a folder, nothing stays behind."""
    if folder is None:
        with TemporaryDirectory(prefix="bloom-examples-") as temporary:
            found = make(Path(temporary))
            # Files that are mapped stay readable without a name.
            return _read(Path(temporary)), found
    if (kept := _index(folder, key)) is not None:
        return _read(folder), kept
    shutil.rmtree(folder, ignore_errors=True)
    with complete_or_absent(folder) as writing:
        found = make(writing)
        (writing / _INDEX).write_text(json.dumps({"key": key, **asdict(found)}) + "\n", encoding="utf-8")
    return _read(folder), found


def _index(folder: Path, key: str) -> Findings | None:
    try:
        said = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        if said.pop("key") != key:
            return None
        return Findings(**{**said, "notes": tuple(said["notes"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(folder: Path) -> Sides:
    return {side: _side(folder, side) for side in ("train", "eval") if (folder / f"{side}.tokens").exists()}


def _side(folder: Path, side: str) -> Examples:
    lengths = np.fromfile(folder / f"{side}.lengths", dtype=_LENGTHS)
    starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    if not len(lengths):
        return Examples(np.empty(0, _TOKENS), np.empty(0, _TRAINED), starts)
    return Examples(
        np.memmap(folder / f"{side}.tokens", dtype=_TOKENS, mode="r"),
        np.memmap(folder / f"{side}.trained", dtype=_TRAINED, mode="r"),
        starts,
    )
