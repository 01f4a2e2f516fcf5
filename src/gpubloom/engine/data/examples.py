"""Examples: a file of rows as the tokens that are trained, kept on disk and mapped into memory.

gpubloom.datasets reads rows and tokenizes them (`read_examples`); tokens go to disk as they come.

A folder of examples holds both sides of the split and examples.json, and is complete or absent. Its key says
what it was made from; a resume uses it again, and under another key it is made anew.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpubloom.datasets import ModelFiles, ReadingOptions, example_files, read_examples
from gpubloom.engine.data.packing import Examples, PackedRows, pack
from gpubloom.engine.shards.atomic_folder import complete_or_absent
from gpubloom.plan import DataConfig
from gpubloom.traincard.findings import Finding

_INDEX = "examples.json"
_TOKENS, _TRAINED, _LENGTHS = np.dtype("<u4"), np.dtype(np.bool_), np.dtype("<u4")

Sides = dict[str, Examples]
_VERSION = 6
_TEMPLATE_FILES = ("tokenizer_config.json", "chat_template.jinja", "chat_template.json")


@dataclass(frozen=True)
class ReadFacts:
    """What is known about the examples besides their tokens."""

    findings: tuple[Finding, ...]
    # The token that closes what the model writes, where all conversations agree on one.
    turn_end: int | None
    # Of the files that are trained on: rows that became examples, and rows that there are.
    rows_used: int
    rows_total: int
    # The chat template of the conversations, where the model folder does not have this one.
    template: str | None = None


class ExampleWriter:
    """Appends examples to the files of one side."""

    def __init__(self, folder: Path, side: str) -> None:
        self._files = [(folder / f"{side}.{name}").open("wb") for name in ("tokens", "trained", "lengths")]
        self.count = 0

    def add(self, ids: Sequence[int], trained: Sequence[bool], times: int = 1) -> None:
        columns: list[npt.NDArray[Any]] = [
            np.asarray(ids, dtype=_TOKENS),
            np.asarray(trained, dtype=_TRAINED),
            np.asarray([len(ids)], dtype=_LENGTHS),
        ]
        for file, column in zip(self._files, columns, strict=True):
            file.write(column.tobytes() * times)
        self.count += times

    def __enter__(self) -> "ExampleWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


def kept_examples(
    folder: Path | None, key: str, make: Callable[[Path], ReadFacts]
) -> tuple[Sides, ReadFacts]:
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


def _index(folder: Path, key: str) -> ReadFacts | None:
    try:
        said = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        if said.pop("key") != key:
            return None
        return ReadFacts(**{**said, "findings": tuple(Finding(**each) for each in said["findings"])})
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


@dataclass(frozen=True)
class OpenedExamples:
    """Both sides of files of examples, packed into rows of one length."""

    train: PackedRows
    eval: PackedRows | None
    facts: ReadFacts


def open_examples(config: DataConfig, context_length: int, cache: Path | None = None) -> OpenedExamples:
    """Reads, tokenizes and packs. With a cache folder, a second time is only reading what lies there."""
    train, evaluation = example_files(config)
    options = ReadingOptions.of(config, context_length)
    assert config.tokenizer.path is not None, "the config refuses examples without a tokenizer"
    tokenizer = Path(config.tokenizer.path)
    # Said before anything is hashed.
    for file in (*train, evaluation):
        if file is not None:
            file.open()

    def make(folder: Path) -> ReadFacts:
        model = ModelFiles.load(tokenizer, config.template_name)
        with ExitStack() as stack:
            writers = {side: stack.enter_context(ExampleWriter(folder, side)) for side in ("train", "eval")}
            read = read_examples(
                train,
                evaluation,
                options,
                model,
                lambda side, example, times: writers[side].add(
                    example.tokens.ids, example.tokens.trained, times
                ),
            )
        is_new = config.template_name is not None or model.template.is_fallback
        template = model.template.source if is_new and read.has_conversations else None
        used, rows = sum(file.used for file in read.train), sum(file.rows for file in read.train)
        return ReadFacts(read.findings, read.turn_end, used, rows, template)

    tokenizer_files = (tokenizer.with_name(name) for name in _TEMPLATE_FILES)
    data_files = [file.path for file in (*train, evaluation) if file is not None]
    key = _key(config, context_length, [*data_files, tokenizer, *tokenizer_files])
    sides, facts = kept_examples(cache, key, make)
    rows = {
        side: pack(examples, context_length, together=config.packing)
        for side, examples in sides.items()
        if len(examples)
    }
    longest = max(packed.length for packed in rows.values())
    # One length for both, so that layers are compiled once.
    packed_train, packed_eval = (
        replace(rows[side], length=longest) if side in rows else None for side in ("train", "eval")
    )
    assert packed_train is not None
    return OpenedExamples(packed_train, packed_eval, facts)


def _key(config: DataConfig, context_length: int, files: list[Path]) -> str:
    """Changes with everything that tokens depend on."""
    asked = config.model_dump(
        include={
            *("format", "columns", "encoding", "eval_format", "eval_columns", "eval_encoding"),
            *("chat_template", "train_on", "too_long", "eval_fraction", "weight", "mix"),
        }
    )
    digest = hashlib.blake2b(json.dumps([_VERSION, context_length, asked], sort_keys=True).encode())
    for file in files:
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
        digest.update(b"|")
    return digest.hexdigest()
