"""inspect: everything about a file of examples, in one pass and bounded memory.

Columns, lengths and the longest rows are counted in memory that grows with a file's variety, never with its
length. Examples that occur more than once are found through sorted runs of (digest, row) in a temporary file,
merged at the end; memory holds one run.
"""

import heapq
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import IO

from gpubloom.datasets.columns import Column, ColumnCounter, nested_paths, unused_columns
from gpubloom.datasets.conversion import SideChooser, Split, SplitName
from gpubloom.datasets.detection import Detection, detect, sample
from gpubloom.datasets.example import Example
from gpubloom.datasets.model_files import ModelFiles
from gpubloom.datasets.pages import RowIndex
from gpubloom.datasets.problems import Problem, ProblemLog, RowProblem
from gpubloom.datasets.rendering import Rendered, render
from gpubloom.datasets.rows import Progress, Row
from gpubloom.datasets.shaping import Mapping, to_example
from gpubloom.datasets.source import Source
from gpubloom.errors import InputError

_RUN = 1 << 16
_RECORD = 16
_READ_RECORDS = 1_024

_LONGEST_SHOWN = 5
_PATH_ROWS = 20
_ROUNDED_FROM, _ROUNDED = 100_000, 1_000
# Two bars to an octave: 0, 1, 2, 3, 4, 6, 8, 12 …
_EDGES = (0, 1, *(edge for power in range(1, 33) for edge in (1 << power, 3 << (power - 1))))
_BATCH_ROWS = 64
_BATCH_CHARACTERS = 1 << 20
_PROGRESS_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Duplicates:
    """How many rows repeat an earlier one, and the first such groups by row number."""

    repeated: int
    groups: int
    first: tuple[tuple[int, ...], ...]


class DuplicateFinder:
    """Takes digests as they come and says at the end which rows are equal."""

    def __init__(self, keep: int = 20, rows_shown: int = 10) -> None:
        self._keep = keep
        self._rows_shown = rows_shown
        self._run: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []

    def __enter__(self) -> "DuplicateFinder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, digest: bytes, row: int) -> None:
        self._run.append(digest + row.to_bytes(8, "big"))
        if len(self._run) == _RUN:
            self._write_run()

    def result(self) -> Duplicates:
        self._run.sort()
        sources = [self._read_run(begin, end) for begin, end in self._runs]
        repeated = groups = 0
        # The groups whose second row comes earliest, kept in a heap of fixed size.
        first: list[tuple[int, tuple[int, ...]]] = []
        for _, records in groupby(heapq.merge(*sources, self._run), key=lambda record: record[:8]):
            rows, count = [], 0
            for record in records:
                count += 1
                if count <= self._rows_shown:
                    rows.append(int.from_bytes(record[8:], "big"))
            if count > 1:
                repeated += count - 1
                groups += 1
                heapq.heappush(first, (-rows[1], tuple(rows)))
                if len(first) > self._keep:
                    heapq.heappop(first)
        return Duplicates(repeated, groups, tuple(sorted(rows for _, rows in first)))

    def _write_run(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the finder
        self._run.sort()
        begin = self._file.seek(0, 2)
        self._file.write(b"".join(self._run))
        self._runs.append((begin, self._file.tell()))
        self._run.clear()

    def _read_run(self, begin: int, end: int) -> Iterator[bytes]:
        assert self._file is not None
        while begin < end:
            self._file.seek(begin)
            content = self._file.read(min(_READ_RECORDS * _RECORD, end - begin))
            begin += len(content)
            for at in range(0, len(content), _RECORD):
                yield content[at : at + _RECORD]


@dataclass(frozen=True, slots=True)
class Bar:
    """How many rows have a length from (inclusive) to (exclusive)."""

    begin: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the rows are, in tokens, or in characters where there is no tokenizer."""

    unit: str
    total: int
    trained: int
    # Row number and length.
    longest: tuple[tuple[int, int], ...]
    # Half, and 95 of a hundred, are no longer than these.
    median: int
    percentile_95: int
    histogram: tuple[Bar, ...]
    too_long: int
    first_too_long: tuple[int, ...]


@dataclass
class LengthCounter:
    """Takes one length after the other."""

    unit: str
    limit: int | None = None
    keep: int = 20
    _counts: list[int] = field(default_factory=lambda: [0] * len(_EDGES))
    # Rows by length; lengths of very long rows are rounded, so that there are never too many.
    _exact: Counter[int] = field(default_factory=Counter)
    _total: int = 0
    _trained: int = 0
    _longest: list[tuple[int, int]] = field(default_factory=list)
    _too_long: int = 0
    _first_too_long: list[int] = field(default_factory=list)

    def add(self, row: int, length: int, trained: int) -> None:
        self._counts[bisect_right(_EDGES, length) - 1] += 1
        self._exact[length if length < _ROUNDED_FROM else length - length % _ROUNDED] += 1
        self._total += length
        self._trained += trained
        # The row is negative so that of equal lengths the first row stays.
        heapq.heappush(self._longest, (length, -row))
        if len(self._longest) > _LONGEST_SHOWN:
            heapq.heappop(self._longest)
        if self.limit is not None and length > self.limit:
            self._too_long += 1
            if len(self._first_too_long) < self.keep:
                self._first_too_long.append(row)

    def result(self) -> Lengths:
        bars = [
            Bar(_EDGES[index], _EDGES[index + 1] if index + 1 < len(_EDGES) else 2**63, count)
            for index, count in enumerate(self._counts)
        ]
        used = [index for index, count in enumerate(self._counts) if count]
        histogram = tuple(bars[used[0] : used[-1] + 1]) if used else ()
        return Lengths(
            self.unit,
            self._total,
            self._trained,
            tuple((-row, length) for length, row in sorted(self._longest, reverse=True)),
            _percentile(self._exact, 0.5),
            _percentile(self._exact, 0.95),
            histogram,
            self._too_long,
            tuple(self._first_too_long),
        )


def _percentile(rows_by_length: Counter[int], share: float) -> int:
    """The length that this share of the rows does not exceed."""
    wanted = share * rows_by_length.total()
    seen = 0
    for length in sorted(rows_by_length):
        seen += rows_by_length[length]
        if seen >= wanted:
            return length
    return 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a file holds. `mapping` is None when nobody knows which column is what; then there are no
    examples, only rows and columns."""

    name: str
    kind: str
    size: int
    encoding: str | None
    notes: tuple[str, ...]
    rows: int
    blank_lines: int
    columns: tuple[Column, ...]
    # Paths into lists and objects that a mapping can name, and columns with content that it does not use.
    paths: tuple[str, ...]
    unused_columns: tuple[str, ...]
    detection: Detection
    mapping: Mapping | None
    examples: int
    train: int
    eval: int
    problems: ProblemLog
    lengths: Lengths | None
    duplicates: Duplicates | None


def inspect(
    source: Source,
    *,
    mapping: Mapping | None = None,
    model: ModelFiles | None = None,
    context_length: int | None = None,
    split: Split | None = None,
    keep: int = 20,
    save_index: bool = True,
    on_progress: Callable[[int], None] | None = None,
    on_problem: Callable[[Problem], None] | None = None,
) -> Report:
    """Reads every row once. `on_progress` is told how many bytes (in parquet, rows) are behind, `on_problem`
    of every problem, of which the report keeps the first ones."""
    if context_length is not None and model is None:
        raise InputError(
            "tokenizer_needed", "The context length is a number of tokens: choose a tokenizer as well."
        )
    sampled = sample(source)
    detection = detect(sampled)
    chosen = mapping or (detection.mapping if detection.is_sure else None)
    with DuplicateFinder(keep) as duplicates:
        run = _Inspection(chosen, model, context_length, split or Split(), keep, duplicates, on_problem)
        progress, index = Progress(), RowIndex.empty()
        for row in source.rows(progress=progress):
            index.add(row)
            run.add(row)
            if on_progress is not None and row.number % _PROGRESS_ROWS == 0:
                on_progress(progress.offset)
        run.finish()
        if on_progress is not None:
            on_progress(progress.offset)
        if save_index and source.kind != ".parquet":
            index.save(source)
        notes = [*source.notes, *([model.template.note] if model and model.template.note else [])]
        if run.columns.left_out:
            notes.append("There are more than 1,000 columns; only the first 1,000 are counted.")
        return Report(
            name=source.path.name,
            kind=source.path.suffix.lower(),
            size=source.size,
            encoding=source.encoding.codec if source.encoding else None,
            notes=tuple(notes),
            rows=index.rows,
            blank_lines=progress.blank_lines,
            columns=run.columns.columns(),
            paths=tuple(dict.fromkeys(path for row in sampled[:_PATH_ROWS] for path in nested_paths(row))),
            unused_columns=unused_columns(run.columns.filled_names, chosen.columns) if chosen else (),
            detection=detection,
            mapping=chosen,
            examples=run.sides["train"] + run.sides["eval"],
            train=run.sides["train"],
            eval=run.sides["eval"],
            problems=run.problems,
            lengths=run.lengths.result() if chosen else None,
            duplicates=duplicates.result() if chosen else None,
        )


class _Inspection:
    """What is counted along the way."""

    def __init__(
        self,
        mapping: Mapping | None,
        model: ModelFiles | None,
        limit: int | None,
        split: Split,
        keep: int,
        duplicates: DuplicateFinder,
        on_problem: Callable[[Problem], None] | None = None,
    ) -> None:
        self._mapping = mapping
        self._on_problem = on_problem
        self._model = model
        self._chooser: SideChooser[None] = SideChooser(split)
        self._duplicates = duplicates
        self._waiting: list[tuple[int, Rendered]] = []
        self._waiting_characters = 0
        self.columns = ColumnCounter()
        self.problems = ProblemLog(keep)
        self.lengths = LengthCounter("tokens" if model else "characters", limit, keep)
        self.sides: dict[SplitName, int] = {"train": 0, "eval": 0}

    def add(self, row: Row) -> None:
        if row.values is None:
            self._tell(Problem(row.number, row.line, row.problem or "cannot be read"))
            return
        self.columns.add(row.values)
        if self._mapping is None:
            return
        try:
            example = to_example(row.values, self._mapping)
            digest = example.digest()
            self._measure(row, example)
        except RowProblem as problem:
            self._tell(Problem(row.number, row.line, str(problem)))
            return
        self._duplicates.add(digest, row.number)
        self._count_sides(self._chooser.add(digest, None))

    def _count_sides(self, chosen: Iterator[tuple[SplitName, None]]) -> None:
        for side, _ in chosen:
            self.sides[side] += 1

    def _tell(self, problem: Problem) -> None:
        self.problems.add(problem)
        if self._on_problem is not None:
            self._on_problem(problem)

    def _measure(self, row: Row, example: Example) -> None:
        if self._model is None:
            self.lengths.add(row.number, *characters(example))
            return
        rendered = render(example, self._model.template)
        for remark in rendered.remarks:
            self._tell(Problem(row.number, row.line, remark, fatal=False))
        self._waiting.append((row.number, rendered))
        self._waiting_characters += len(rendered.text)
        if len(self._waiting) == _BATCH_ROWS or self._waiting_characters > _BATCH_CHARACTERS:
            self.flush()

    def finish(self) -> None:
        """No more rows will come."""
        self.flush()
        self._count_sides(self._chooser.rest())

    def flush(self) -> None:
        if self._model is None or not self._waiting:
            return
        encoded = self._model.tokenizer.encode_many([rendered for _, rendered in self._waiting])
        for (number, _), tokens in zip(self._waiting, encoded, strict=True):
            self.lengths.add(number, len(tokens), tokens.trained_count)
        self._waiting.clear()
        self._waiting_characters = 0


def characters(example: Example) -> tuple[int, int]:
    """How long an example is, and how much of it is trained, without any template."""
    if example.messages is None:
        return len(example.text or ""), sum(end - begin for begin, end in example.spans)
    return (
        sum(len(message.content) for message in example.messages),
        sum(len(message.content) for message in example.messages if message.trained),
    )
