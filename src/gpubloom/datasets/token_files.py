"""The tokens of a run's examples on disk: the pre-flight or the trainer writes them, the trainer maps them.

A folder holds for each side the token ids (`<u4`), whether each is trained (one byte), and the length of each
example (`<u4`). examples.json, written last, holds the key: what the tokens were made from. Under another key
they are made anew.
"""

import hashlib
import json
import shutil
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from gpubloom.datasets.conversion import SplitName
from gpubloom.datasets.example_reader import (
    ExampleFile,
    PreparedExample,
    ReadExamples,
    ReadingOptions,
    Take,
    read_examples,
)
from gpubloom.datasets.model_files import ModelFiles
from gpubloom.traincard.findings import Finding

_INDEX = "examples.json"
_COLUMNS = ("tokens", "trained", "lengths")
SIDES: tuple[SplitName, ...] = get_args(SplitName)
# Counts up when the same rows become other tokens, or their files another format.
_VERSION = 7
# Where the chat template and the special tokens of a model stand.
_TEMPLATE_FILES = (
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "config.json",
)


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


def column_file(folder: Path, side: SplitName, column: str) -> Path:
    return folder / f"{side}.{column}"


def write_tokens(
    folder: Path,
    key: str,
    train: Sequence[ExampleFile],
    evaluation: ExampleFile | None,
    options: ReadingOptions,
    model: ModelFiles,
    take: Take | None = None,
) -> ReadExamples:
    """`read_examples`, whose tokens also become the files of a folder."""
    with ExitStack() as stack:
        files = {
            side: [stack.enter_context(column_file(folder, side, name).open("wb")) for name in _COLUMNS]
            for side in SIDES
        }

        def write(side: SplitName, example: PreparedExample, times: int) -> None:
            count = len(example.tokens)
            columns = (
                struct.pack(f"<{count}I", *example.tokens.ids),
                bytes(example.tokens.trained),
                struct.pack("<I", count),
            )
            for file, column in zip(files[side], columns, strict=True):
                file.write(column * times)
            if take is not None:
                take(side, example, times)

        read = read_examples(train, evaluation, options, model, write)
    facts = ReadFacts(
        read.findings,
        read.turn_end,
        sum(file.used for file in read.train),
        sum(file.rows for file in read.train),
        model.template.source if model.has_other_template and read.has_conversations else None,
    )
    (folder / _INDEX).write_text(json.dumps({"key": key, **asdict(facts)}) + "\n", encoding="utf-8")
    return read


def move_tokens(folder: Path, target: Path) -> None:
    """To a folder that does not exist yet, also on another disk. It is complete or absent."""
    moving = target.with_name(f".moving-{target.name}")
    shutil.move(folder, moving)
    moving.rename(target)


def read_facts(folder: Path, key: str) -> ReadFacts | None:
    """What is known about the examples of a folder; None if it holds none that were made from the same."""
    try:
        said = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        if said.pop("key") != key:
            return None
        return ReadFacts(**{**said, "findings": tuple(Finding(**each) for each in said["findings"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def examples_key(
    train: Sequence[ExampleFile],
    evaluation: ExampleFile | None,
    options: ReadingOptions,
    tokenizer: Path,
    template_name: str | None,
) -> str:
    """Changes with everything that tokens and findings depend on."""
    files = (*train, *([] if evaluation is None else [evaluation]))
    how = [(file.title, file.format, file.columns, file.encoding, file.weight) for file in files]
    asked = [_VERSION, asdict(options), template_name, len(train), how]
    digest = hashlib.blake2b(json.dumps(asked, sort_keys=True).encode())
    folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
    tokenizer_file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    for path in (
        *(file.path for file in files),
        tokenizer_file,
        *(folder / name for name in _TEMPLATE_FILES),
    ):
        if path.is_file():
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
        digest.update(b"|")
    return digest.hexdigest()
