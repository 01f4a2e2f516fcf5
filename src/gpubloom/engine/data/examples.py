"""Examples: files of rows as the tokens that are trained, kept on disk and mapped into memory.

gpubloom.datasets reads rows and tokenizes them; tokens go to disk as they come (`token_files`). A resume uses
them again, and so does a run whose pre-flight has written them.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gpubloom.datasets import ModelFiles, ReadingOptions, example_files
from gpubloom.datasets.conversion import SplitName
from gpubloom.datasets.token_files import (
    SIDES,
    ReadFacts,
    column_file,
    examples_key,
    read_facts,
    write_tokens,
)
from gpubloom.engine.data.packing import Examples, PackedRows, pack
from gpubloom.engine.shards.atomic_folder import complete_or_absent
from gpubloom.plan import DataConfig

# As token_files says.
_TOKENS, _TRAINED, _LENGTHS = np.dtype("<u4"), np.dtype(np.bool_), np.dtype("<u4")


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
    key = examples_key(train, evaluation, options, tokenizer, config.template_name)

    def write(folder: Path) -> None:
        model = ModelFiles.load(tokenizer, config.template_name)
        write_tokens(folder, key, train, evaluation, options, model)

    sides, facts = _examples(cache, key, write)
    rows = {
        side: pack(examples, context_length, together=config.packing)
        for side, examples in sides.items()
        if len(examples)
    }
    longest = max(packed.length for packed in rows.values())
    # One length for both, so that layers are compiled once.
    packed_train, packed_eval = (
        replace(rows[side], length=longest) if side in rows else None for side in SIDES
    )
    assert packed_train is not None
    return OpenedExamples(packed_train, packed_eval, facts)


_Opened = tuple[dict[SplitName, Examples], ReadFacts]


def _examples(folder: Path | None, key: str, write: Callable[[Path], None]) -> _Opened:
    """The examples of a folder, written there unless they are. Without a folder, nothing stays behind."""
    if folder is None:
        with TemporaryDirectory(prefix="bloom-examples-") as temporary:
            write(Path(temporary))
            # Files that are mapped stay readable without a name.
            opened = _opened(Path(temporary), key)
    elif (opened := _opened(folder, key)) is None:
        shutil.rmtree(folder, ignore_errors=True)
        with complete_or_absent(folder) as writing:
            write(writing)
        opened = _opened(folder, key)
    assert opened is not None
    return opened


def _opened(folder: Path, key: str) -> _Opened | None:
    if (facts := read_facts(folder, key)) is None:
        return None
    return {side: _side(folder, side) for side in SIDES}, facts


def _side(folder: Path, side: SplitName) -> Examples:
    lengths = np.fromfile(column_file(folder, side, "lengths"), dtype=_LENGTHS)
    starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    if not len(lengths):
        return Examples(np.empty(0, _TOKENS), np.empty(0, _TRAINED), starts)
    return Examples(
        np.memmap(column_file(folder, side, "tokens"), dtype=_TOKENS, mode="r"),
        np.memmap(column_file(folder, side, "trained"), dtype=_TRAINED, mode="r"),
        starts,
    )
