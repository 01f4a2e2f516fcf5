"""inspect: everything about a file of examples, in one pass and bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass

from gpubloom.datasets.detection import Detection, detect, sample
from gpubloom.datasets.duplicates import DuplicateFinder, Duplicates
from gpubloom.datasets.example import Example
from gpubloom.datasets.model_files import ModelFiles
from gpubloom.datasets.problems import Problem, ProblemLog, RowProblem
from gpubloom.datasets.rendering import Rendered, render
from gpubloom.datasets.row_index import RowIndex
from gpubloom.datasets.rows import Progress, Row
from gpubloom.datasets.shaping import Mapping, to_example
from gpubloom.datasets.source import Source
from gpubloom.datasets.splits import Split
from gpubloom.datasets.statistics import Column, ColumnCounter, LengthCounter, Lengths

_BATCH_ROWS = 64
_BATCH_CHARACTERS = 1 << 20
_PROGRESS_ROWS = 1_000


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
        raise ValueError("A context length is counted in tokens: name a tokenizer as well.")
    detection = detect(sample(source))
    chosen = mapping or (detection.mapping if detection.is_sure else None)
    with DuplicateFinder(keep) as duplicates:
        run = _Inspection(chosen, model, context_length, split or Split(), keep, duplicates, on_problem)
        progress, index = Progress(), RowIndex.empty()
        for row in source.rows(progress=progress):
            index.add(row)
            run.add(row)
            if on_progress is not None and row.number % _PROGRESS_ROWS == 0:
                on_progress(progress.offset)
        run.flush()
        if on_progress is not None:
            on_progress(progress.offset)
        if save_index and source.kind != ".parquet":
            index.save(source)
        notes = [*source.notes, *([model.template.note] if model and model.template.note else [])]
        if run.columns.left_out:
            notes.append("There are more than 1,000 columns; the others are not counted.")
        return Report(
            name=source.path.name,
            kind=source.path.suffix.lower(),
            size=source.size,
            encoding=source.encoding.codec if source.encoding else None,
            notes=tuple(notes),
            rows=index.rows,
            blank_lines=progress.blank_lines,
            columns=run.columns.columns(),
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
        self._split = split
        self._duplicates = duplicates
        self._waiting: list[tuple[int, Rendered]] = []
        self._waiting_characters = 0
        self.columns = ColumnCounter()
        self.problems = ProblemLog(keep)
        self.lengths = LengthCounter("tokens" if model else "characters", limit, keep)
        self.sides = {"train": 0, "eval": 0}

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
        self.sides[self._split.of(digest)] += 1

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

    def flush(self) -> None:
        if self._model is None or not self._waiting:
            return
        encoded = self._model.tokenizer.encode_many([rendered for _, rendered in self._waiting])
        for (number, _), tokens in zip(self._waiting, encoded, strict=True):
            self.lengths.add(number, len(tokens), sum(tokens.trained))
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
