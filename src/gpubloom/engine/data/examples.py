"""Examples: a file of rows as the tokens that are trained, kept on disk and mapped into memory.

gpubloom.datasets renders rows to text. Memory holds a few rows at a time; tokens go to disk as they come.
Rows that cannot be used or were cut are counted and reported with the first lines where it happened.

A folder of examples holds both sides of the split and examples.json, and is complete or absent. Its key says
what it was made from; a resume uses it again, and under another key it is made anew.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpubloom.datasets import (
    FIELDS,
    Mapping,
    ModelFiles,
    Problem,
    ProblemLog,
    Rendered,
    Row,
    RowProblem,
    Source,
    Split,
    Tokens,
    detect,
    render,
    sample,
    to_example,
)
from gpubloom.engine.data.packing import Examples, PackedRows, pack
from gpubloom.engine.shards.atomic_folder import complete_or_absent
from gpubloom.errors import InputError
from gpubloom.plan import DataConfig

_INDEX = "examples.json"
_TOKENS, _TRAINED, _LENGTHS = np.dtype("<u4"), np.dtype(np.bool_), np.dtype("<u4")

Sides = dict[str, Examples]
_VERSION = 2
_BATCH_ROWS = 256
_BATCH_CHARACTERS = 1 << 20
_NAMED = 3
# Of the conversations that end alike; a few are cut short by their authors.
_AGREEMENT = 0.95
_TEMPLATE_FILES = ("tokenizer_config.json", "chat_template.jinja", "chat_template.json")


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


@dataclass(frozen=True)
class OpenedExamples:
    """Both sides of a file of examples, packed into rows of one length."""

    train: PackedRows
    eval: PackedRows | None
    findings: Findings


def open_examples(config: DataConfig, context_length: int, cache: Path | None = None) -> OpenedExamples:
    """Reads, tokenizes and packs. With a cache folder, a second time is only reading what lies there."""
    assert config.train_path is not None
    assert config.tokenizer.path is not None, "the config refuses examples without a tokenizer"
    paths = {"train": Path(config.train_path), "eval": Path(config.eval_path) if config.eval_path else None}
    sources = {
        side: Source.open(path, encoding=config.encoding) for side, path in paths.items() if path is not None
    }
    tokenizer = Path(config.tokenizer.path)

    def make(folder: Path) -> Findings:
        return _Reading(config, context_length, ModelFiles.load(tokenizer)).run(sources, folder)

    tokenizer_files = (tokenizer.with_name(name) for name in _TEMPLATE_FILES)
    files = [*(source.path for source in sources.values()), tokenizer, *tokenizer_files]
    key = _key(config, context_length, files)
    sides, findings = kept_examples(cache, key, make)
    rows = {
        side: pack(examples, context_length, together=config.packing)
        for side, examples in sides.items()
        if len(examples)
    }
    longest = max(packed.length for packed in rows.values())
    # One length for both, so that layers are compiled once.
    train, evaluation = (replace(rows[side], length=longest) if side in rows else None for side in paths)
    assert train is not None
    return OpenedExamples(train, evaluation, findings)


def mapping_of(source: Source, config: DataConfig) -> Mapping:
    """Which column is what: as the config says, or found out. ValueError when nobody knows."""
    if config.columns and config.format is None:
        return Mapping.by_hand(config.columns)
    rows = sample(source)
    if config.format is None:
        found = detect(rows)
        if found.mapping is None or not found.is_sure:
            raise InputError(
                "format_uncertain",
                f"The format of {source.path.name} could not be detected. {found.reason} "
                "Set data.columns, such as prompt: question and completion: answer.",
            )
        return found.mapping
    needed, optional = FIELDS[config.format]
    columns = config.columns
    if not columns:
        guess = detect(rows).mapping
        if guess is not None and set(needed) <= set(guess.columns) <= {*needed, *optional}:
            return Mapping(config.format, guess.columns)
        present = {name for row in rows for name in row}
        columns = {name: name for name in (*needed, *optional) if name in present or name in needed}
        if missing := [name for name in needed if name not in present]:
            raise InputError(
                "missing_column",
                f"{source.path.name} has no column {', '.join(missing)}, which the format {config.format} "
                "requires: set data.columns to name the column of each field.",
            )
    if unknown := set(columns) - {*needed, *optional}:
        raise InputError(
            "incomplete_mapping",
            f"data.columns: the format {config.format} has no field {', '.join(sorted(unknown))}.",
        )
    if missing := [name for name in needed if name not in columns]:
        raise InputError(
            "incomplete_mapping",
            f"data.columns: the format {config.format} also requires {', '.join(missing)}.",
        )
    return Mapping(config.format, columns)


@dataclass
class _Counts:
    """What happened to the rows of one file."""

    rows: int = 0
    problems: ProblemLog = field(default_factory=ProblemLog)
    too_long: int = 0
    tokens_lost: int = 0
    long_row_names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Waiting:
    row: Row
    side: str
    rendered: Rendered


class _Reading:
    """One pass over the files."""

    def __init__(self, config: DataConfig, context_length: int, model: ModelFiles) -> None:
        self._config = config
        self._limit = context_length
        self._model = model
        self._ends: Counter[int] = Counter()
        self._conversations = 0
        self._notes: list[str] = []
        self._rows: dict[str, tuple[int, int]] = {}

    def run(self, sources: dict[str, Source], folder: Path) -> Findings:
        alone = "eval" not in sources
        with ExitStack() as stack:
            writers = {side: stack.enter_context(ExampleWriter(folder, side)) for side in ("train", "eval")}
            for side, source in sources.items():
                self._read(source, writers, None if not alone else Split(self._config.eval_fraction), side)
        if self._conversations and self._model.template.note is not None:
            self._notes.append(self._model.template.note)
        counts = {side: writer.count for side, writer in writers.items()}
        name = sources["train"].path.name
        if not counts["train"] and counts["eval"] and alone:
            raise InputError(
                "all_held_out",
                f"All {counts['eval']} examples of {name} were held out for evaluation: "
                "set data.eval_fraction to 0, or add examples that are not duplicates.",
            )
        if alone and self._config.eval_fraction > 0 and not counts["eval"]:
            self._notes.append(
                f"{name}: there are too few examples for an eval split, so the run is not evaluated; "
                "set data.eval_path to a file to evaluate on"
            )
        end, times = self._ends.most_common(1)[0] if self._ends else (None, 0)
        agreed = end is not None and times >= _AGREEMENT * self._conversations
        used, total = self._rows["train"]
        return Findings(tuple(self._notes), end if agreed else None, used, total)

    def _read(
        self, source: Source, writers: dict[str, ExampleWriter], split: Split | None, side: str
    ) -> None:
        counts = _Counts()
        mapping = mapping_of(source, self._config)
        before = sum(writer.count for writer in writers.values())
        for batch in self._batches(source, mapping, split, side, counts):
            encoded = self._model.tokenizer.encode_many([each.rendered for each in batch])
            for each, tokens in zip(batch, encoded, strict=True):
                if (fitting := self._fitting(each, tokens, counts)) is not None:
                    writers[each.side].add(*fitting)
        self._notes += _notes(source.path.name, counts, self._limit, cut=self._config.too_long == "cut")
        used = sum(writer.count for writer in writers.values()) - before
        self._rows[side] = used, counts.rows
        if not used:
            raise InputError(
                "no_examples",
                f"{source.path} contains no example that can be used for training. {self._why(counts)}",
            )

    def _why(self, counts: _Counts) -> str:
        refused = [problem for problem in counts.problems.first if problem.fatal]
        if refused:
            where = refused[0].where
            return f"{where[0].upper()}{where[1:]} {refused[0].reason}."
        return f"All {counts.too_long:,} examples are longer than {self._limit:,} tokens."

    def _batches(
        self, source: Source, mapping: Mapping, split: Split | None, side: str, counts: _Counts
    ) -> Iterator[list[_Waiting]]:
        waiting: list[_Waiting] = []
        characters = 0
        for row in source.rows():
            counts.rows += 1
            try:
                if row.values is None:
                    raise RowProblem("row_unreadable", row.problem or "cannot be read")
                example = to_example(row.values, mapping)
                chosen = side if split is None else split.of(example.digest())
                rendered = render(example, self._model.template)
            except RowProblem as problem:
                counts.problems.add(Problem(row.number, row.line, str(problem)))
                continue
            for remark in rendered.remarks:
                counts.problems.add(Problem(row.number, row.line, remark, fatal=False))
            waiting.append(_Waiting(row, chosen, rendered))
            characters += len(rendered.text)
            if len(waiting) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
                yield waiting
                waiting, characters = [], 0
        if waiting:
            yield waiting

    def _fitting(
        self, each: _Waiting, tokens: Tokens, counts: _Counts
    ) -> tuple[tuple[int, ...], tuple[bool, ...]] | None:
        """An example no longer than a row, or None when nothing of it can be trained."""
        ids, trained = tokens.ids, tokens.trained
        if not each.rendered.is_plain:
            self._conversations += 1
            last = next((index for index in reversed(range(len(ids))) if trained[index]), None)
            if last is not None:
                self._ends[ids[last]] += 1
        if self._config.train_on == "everything":
            trained = (True,) * len(ids)
        where = Problem(each.row.number, each.row.line, "").where
        if len(ids) > self._limit:
            counts.too_long += 1
            counts.tokens_lost += len(ids) - (self._limit if self._config.too_long == "cut" else 0)
            if len(counts.long_row_names) < _NAMED:
                counts.long_row_names.append(where)
            if self._config.too_long == "skip":
                return None
            ids, trained = ids[: self._limit], trained[: self._limit]
        if not any(trained[1:]):
            counts.problems.add(
                Problem(
                    each.row.number,
                    each.row.line,
                    f"has no tokens to train on within the max sequence length of {self._limit:,} tokens",
                )
            )
            return None
        return ids, trained


def _notes(name: str, counts: _Counts, limit: int, *, cut: bool) -> list[str]:
    notes = []
    problems = counts.problems
    for refused, what in (
        (problems.rows_refused, "cannot be used"),
        (problems.remarks, "are used, but need a check"),
    ):
        if refused:
            first = [each for each in problems.first if each.fatal == (what == "cannot be used")]
            named = "; ".join(f"{each.where} {each.reason}" for each in first[:_NAMED])
            more = " …" if refused > _NAMED else ""
            notes.append(f"{name}: {refused:,} of {counts.rows:,} rows {what}: {named}{more}")
    if counts.too_long:
        row_names = ", ".join(counts.long_row_names) + (
            " …" if counts.too_long > len(counts.long_row_names) else ""
        )
        what = "were truncated" if cut else "were skipped"
        notes.append(
            f"{name}: {counts.too_long:,} examples are longer than {limit:,} tokens and {what} "
            f"({counts.tokens_lost:,} tokens removed; {row_names})"
        )
    return notes


def _key(config: DataConfig, context_length: int, files: list[Path]) -> str:
    """Changes with everything that tokens depend on."""
    asked = config.model_dump(
        include={"format", "columns", "encoding", "train_on", "too_long", "eval_fraction"}
    )
    digest = hashlib.blake2b(json.dumps([_VERSION, context_length, asked], sort_keys=True).encode())
    for file in files:
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
        digest.update(b"|")
    return digest.hexdigest()
