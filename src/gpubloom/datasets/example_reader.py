"""read_examples: files of rows as the tokens that a run trains on, in one pass.

The trainer and the pre-flight both read through here, so what a pre-flight counts is what a run trains.
Memory holds a few rows at a time, and of a small file the rows among which some must be held out. Tokenizing
runs in threads of its own, which need no lock of Python's while the next rows are rendered.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from gpubloom.datasets.columns import ColumnCounter, unused_columns
from gpubloom.datasets.conversion import SideChooser, Split, SplitName
from gpubloom.datasets.detection import advice, detect, sample
from gpubloom.datasets.model_files import ModelFiles, Tokens
from gpubloom.datasets.problems import Problem, ProblemLog, RowProblem
from gpubloom.datasets.rendering import Rendered, render
from gpubloom.datasets.rows import Row
from gpubloom.datasets.shaping import FIELDS, Format, Mapping, to_example
from gpubloom.datasets.source import Source
from gpubloom.errors import InputError
from gpubloom.traincard.findings import Finding

# Large: a batch costs the tokenizer as much again as some hundred rows.
_BATCH_ROWS = 2_048
_BATCH_CHARACTERS = 1 << 21
_NAMED = 3
# One renders and counts, the other ones tokenize; more would only wait for the first.
_THREADS = 2
# Of the conversations that end alike; a few are cut short by their authors.
_AGREEMENT = 0.95


@dataclass(frozen=True, slots=True)
class ExampleFile:
    """A file of rows, and how it is read where that is not detected."""

    path: Path
    format: Format | None = None
    columns: dict[str, str] = field(default_factory=dict)
    encoding: str | None = None
    # How often an epoch trains each of its examples; below 1, the share of them that it trains.
    weight: float = 1.0
    # What its owner calls it.
    name: str | None = None

    @property
    def title(self) -> str:
        return self.name or self.path.name

    def open(self) -> Source:
        return Source.open(self.path, encoding=self.encoding)

    def repeats(self, digest: bytes) -> int:
        """How often an epoch trains the example with this digest."""
        whole = int(self.weight)
        return whole + (_PART.draw(digest) < int((self.weight - whole) * 2**64))


# Which examples belong to a part of a file does not depend on which ones are held out.
_PART = Split(seed=1)


class MixedFile(Protocol):
    """The fields of one more file of a run's data config."""

    @property
    def path(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def format(self) -> Format | None: ...
    @property
    def columns(self) -> dict[str, str]: ...
    @property
    def encoding(self) -> str | None: ...


class DataSettings(Protocol):
    """The fields of a run's data config that reading depends on."""

    @property
    def train_path(self) -> str | None: ...
    @property
    def eval_path(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def eval_name(self) -> str | None: ...
    @property
    def format(self) -> Format | None: ...
    @property
    def columns(self) -> dict[str, str]: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def mix(self) -> Sequence[MixedFile]: ...
    @property
    def eval_format(self) -> Format | None: ...
    @property
    def eval_columns(self) -> dict[str, str]: ...
    @property
    def eval_encoding(self) -> str | None: ...
    @property
    def train_on(self) -> Literal["completions", "everything"]: ...
    @property
    def too_long(self) -> Literal["cut", "skip"]: ...
    @property
    def eval_fraction(self) -> float: ...


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """What decides, besides files and model, which tokens a run trains on."""

    context_length: int
    train_on: Literal["completions", "everything"] = "completions"
    too_long: Literal["cut", "skip"] = "cut"
    eval_fraction: float = 0.0

    @classmethod
    def of(cls, config: DataSettings, context_length: int) -> "ReadingOptions":
        return cls(context_length, config.train_on, config.too_long, config.eval_fraction)


def example_files(config: DataSettings) -> tuple[tuple[ExampleFile, ...], ExampleFile | None]:
    """The files of examples that a config trains on, and the one that it evaluates on."""
    assert config.train_path is not None
    first = ExampleFile(
        Path(config.train_path), config.format, config.columns, config.encoding, config.weight, config.name
    )
    mixed = (
        ExampleFile(Path(each.path), each.format, each.columns, each.encoding, each.weight, each.name)
        for each in config.mix
    )
    train = (first, *mixed)
    if config.eval_path is None:
        return train, None
    if config.eval_format is None and not config.eval_columns:
        encoding = config.eval_encoding or config.encoding
        path, name = Path(config.eval_path), config.eval_name
        return train, replace(first, path=path, encoding=encoding, weight=1.0, name=name)
    evaluation = ExampleFile(
        Path(config.eval_path),
        config.eval_format,
        config.eval_columns,
        config.eval_encoding,
        name=config.eval_name,
    )
    return train, evaluation


@dataclass(frozen=True, slots=True)
class PreparedExample:
    """An example no longer than a sequence."""

    digest: bytes
    tokens: Tokens


# Called with the side, the example and how often an epoch has it, in the order of the files.
Take = Callable[[SplitName, PreparedExample, int], None]


@dataclass
class FileCounts:
    """What happened to the rows of one file."""

    name: str
    rows: int = 0
    used: int = 0
    problems: ProblemLog = field(default_factory=ProblemLog)
    # Of the rows that cannot be used, those that the chat template rejects.
    rejected_by_template: int = 0
    too_long: int = 0
    tokens_lost: int = 0
    long_row_names: list[str] = field(default_factory=list)
    unused_columns: tuple[str, ...] = ()
    # Set if the file is not UTF-8 and nobody named its encoding.
    guessed_encoding: str | None = None
    weight: float = 1.0
    # What an epoch trains of the file, repetitions included.
    trained_examples: int = 0
    trained_tokens: int = 0


@dataclass(frozen=True)
class ReadExamples:
    """What is known about the examples besides their tokens."""

    train: tuple[FileCounts, ...]
    eval: FileCounts | None
    # Different rows on each side: repetitions of a weight do not count.
    sides: dict[SplitName, int]
    findings: tuple[Finding, ...]
    # The token that closes what the model writes, where all conversations agree on one.
    turn_end: int | None
    has_conversations: bool


# How read_examples is called.
Reader = Callable[[Sequence[ExampleFile], ExampleFile | None, ReadingOptions, ModelFiles, Take], ReadExamples]


def read_examples(
    train: Sequence[ExampleFile],
    evaluation: ExampleFile | None,
    options: ReadingOptions,
    model: ModelFiles,
    take: Take,
) -> ReadExamples:
    """Reads every file once. Raises InputError when nothing of them can be trained on."""
    return _Reading(options, model, take).run(train, evaluation)


def mapping_of(source: Source, file: ExampleFile) -> Mapping:
    """Which column is what: as the settings say, or detected. InputError when it cannot be detected."""
    if file.columns and file.format is None:
        return Mapping.by_hand(file.columns)
    rows = sample(source)
    if file.format is None:
        if not rows:
            raise InputError(
                "no_examples",
                f"{file.title} has no row that can be read. `bloom datasets inspect` shows why.",
            )
        found = detect(rows)
        if found.mapping is None or not found.is_sure:
            raise InputError(
                "format_uncertain",
                f"The format of {file.title} could not be detected. {found.reason} {advice(found, rows)}",
            )
        return found.mapping
    needed, optional = FIELDS[file.format]
    columns = file.columns
    if not columns:
        guess = detect(rows).mapping
        if guess is not None and set(needed) <= set(guess.columns) <= {*needed, *optional}:
            return Mapping(file.format, guess.columns)
        present = {name for row in rows for name in row}
        # A column named label is often a class, not a verdict on the answer.
        usual = (*needed, *(name for name in optional if name != "label"))
        columns = {name: name for name in usual if name in present or name in needed}
        if missing := [name for name in needed if name not in present]:
            raise InputError(
                "missing_column",
                f"{file.title} has no column {', '.join(missing)}, which the format {file.format} "
                "requires: set data.columns to name the column of each field.",
            )
    if unknown := set(columns) - {*needed, *optional}:
        raise InputError(
            "incomplete_mapping",
            f"data.columns: the format {file.format} has no field {', '.join(sorted(unknown))}.",
        )
    if missing := [name for name in needed if name not in columns]:
        raise InputError(
            "incomplete_mapping",
            f"data.columns: the format {file.format} also requires {', '.join(missing)}.",
        )
    return Mapping(file.format, columns)


@dataclass(frozen=True, slots=True)
class _Waiting:
    row: Row
    digest: bytes
    rendered: Rendered


# An example, the file that it is of, and what happened to the rows of that file.
_Chosen = tuple[ExampleFile, FileCounts, PreparedExample]


class _Reading:
    """One pass over the files."""

    def __init__(self, options: ReadingOptions, model: ModelFiles, take: Take) -> None:
        self._options = options
        self._limit = options.context_length
        self._model = model
        self._take = take
        self._ends: Counter[int] = Counter()
        self._conversations = 0
        self._findings: list[Finding] = []
        self._sides: dict[SplitName, int] = {"train": 0, "eval": 0}

    def run(self, train: Sequence[ExampleFile], evaluation: ExampleFile | None) -> ReadExamples:
        alone = evaluation is None
        # One split of all files: equal examples of two files stay on one side.
        chooser: SideChooser[_Chosen] = SideChooser(Split(self._options.eval_fraction) if alone else Split())
        trained = tuple(self._read(file, chooser, "train") for file in train)
        self._give(chooser.rest(), "train")
        for file, counts in zip(train, trained, strict=True):
            if not counts.trained_examples and file.weight < 1:
                raise InputError(
                    "weight_too_small",
                    f"With the weight {file.weight:g}, no example of {file.title} is trained. Raise its "
                    "weight, or leave the dataset out.",
                )
        evaluated = None
        if evaluation is not None:
            held: SideChooser[_Chosen] = SideChooser(Split())
            evaluated = self._read(evaluation, held, "eval")
            self._give(held.rest(), "eval")
        if self._conversations and self._model.template.note is not None:
            self._findings.append(template_finding(self._model.template.note))
        if alone and self._options.eval_fraction > 0 and not self._sides["eval"]:
            self._findings.append(
                Finding(
                    "not_evaluated",
                    "warning",
                    f"{trained[0].name}: there are too few examples for an eval split, so the run is not "
                    "evaluated.",
                    next_step="Choose a validation dataset (data.eval_path).",
                )
            )
        end, times = self._ends.most_common(1)[0] if self._ends else (None, 0)
        agreed = end is not None and times >= _AGREEMENT * self._conversations
        return ReadExamples(
            trained,
            evaluated,
            dict(self._sides),
            tuple(self._findings),
            end if agreed else None,
            self._conversations > 0,
        )

    def _give(self, chosen: Iterable[tuple[SplitName, _Chosen]], side: SplitName) -> None:
        for drawn, (file, counts, example) in chosen:
            # A file of its own has one side.
            of = drawn if side == "train" else side
            times = file.repeats(example.digest) if of == "train" else 1
            if not times:
                continue
            self._sides[of] += 1
            if of == "train":
                counts.trained_examples += times
                counts.trained_tokens += times * len(example.tokens)
            self._take(of, example, times)

    def _read(self, file: ExampleFile, chooser: SideChooser[_Chosen], side: SplitName) -> FileCounts:
        source = file.open()
        mapping = mapping_of(source, file)
        counts, columns = FileCounts(file.title, weight=file.weight), ColumnCounter()
        if source.encoding is not None and source.encoding.is_guess:
            counts.guessed_encoding = source.encoding.codec
        for batch, encoded in self._encoded(self._batches(source, mapping, counts, columns)):
            for each, tokens in zip(batch, encoded, strict=True):
                if (fitting := self._fitting(each, tokens, counts)) is not None:
                    counts.used += 1
                    self._give(chooser.add(each.digest, (file, counts, fitting)), side)
        counts.unused_columns = unused_columns(columns.filled_names, mapping.columns)
        self._findings += _findings(counts, self._limit, cut=self._options.too_long == "cut")
        if not counts.used:
            raise InputError(
                "no_examples",
                f"{file.name or source.path} contains no example that can be used for training. "
                f"{self._why(counts)}",
            )
        return counts

    def _encoded(
        self, batches: Iterator[list[_Waiting]]
    ) -> Iterator[tuple[list[_Waiting], Sequence[Tokens]]]:
        """Batches with their tokens, in order. The next ones are rendered while some are tokenized."""
        tokenizer = self._model.tokenizer
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenizer") as threads:
            coming: deque[tuple[list[_Waiting], Future[list[Tokens]]]] = deque()
            for batch in batches:
                coming.append(
                    (batch, threads.submit(tokenizer.encode_many, [each.rendered for each in batch]))
                )
                if len(coming) > _THREADS:
                    first, tokens = coming.popleft()
                    yield first, tokens.result()
            for first, tokens in coming:
                yield first, tokens.result()

    def _why(self, counts: FileCounts) -> str:
        refused = [problem for problem in counts.problems.first if problem.fatal]
        if refused:
            where = refused[0].where
            return f"{where[0].upper()}{where[1:]} {refused[0].reason}."
        return f"All {counts.too_long:,} examples are longer than {self._limit:,} tokens."

    def _batches(
        self, source: Source, mapping: Mapping, counts: FileCounts, columns: ColumnCounter
    ) -> Iterator[list[_Waiting]]:
        waiting: list[_Waiting] = []
        characters = 0
        for row in source.rows():
            counts.rows += 1
            try:
                if row.values is None:
                    raise RowProblem("row_unreadable", row.problem or "cannot be read")
                columns.add(row.values)
                example = to_example(row.values, mapping)
                digest = example.digest()
                rendered = render(example, self._model.template)
            except RowProblem as problem:
                counts.problems.add(Problem(row.number, row.line, str(problem), code=problem.code))
                counts.rejected_by_template += problem.code == "row_refused_by_template"
                continue
            for remark in rendered.remarks:
                counts.problems.add(Problem(row.number, row.line, remark, fatal=False))
            waiting.append(_Waiting(row, digest, rendered))
            characters += len(rendered.text)
            if len(waiting) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
                yield waiting
                waiting, characters = [], 0
        if waiting:
            yield waiting

    def _fitting(self, each: _Waiting, tokens: Tokens, counts: FileCounts) -> PreparedExample | None:
        """An example no longer than a row, or None when nothing of it can be trained."""
        length = len(tokens)
        if not each.rendered.is_plain:
            self._conversations += 1
            if tokens.spans:
                self._ends[tokens.ids[tokens.spans[-1][1] - 1]] += 1
        if self._options.train_on == "everything":
            tokens = Tokens(tokens.ids, ((0, length),))
        if length > self._limit:
            counts.too_long += 1
            counts.tokens_lost += length - (self._limit if self._options.too_long == "cut" else 0)
            if len(counts.long_row_names) < _NAMED:
                counts.long_row_names.append(Problem(each.row.number, each.row.line, "").where)
            if self._options.too_long == "skip":
                return None
            tokens = tokens.cut(self._limit)
        if not tokens.predicted_count:
            counts.problems.add(
                Problem(
                    each.row.number,
                    each.row.line,
                    f"has no tokens to train on within the max sequence length of {self._limit:,} tokens",
                )
            )
            return None
        return PreparedExample(each.digest, tokens)


def template_finding(note: str) -> Finding:
    """That conversations are written with another template than one of the model."""
    return Finding(
        "template_replaced",
        "warning",
        note,
        next_step="Choose a chat template, or a model that was trained with one.",
    )


def encoding_finding(name: str, codec: str) -> Finding:
    """That accented letters of a file may be wrong."""
    return Finding(
        "encoding_guessed",
        "warning",
        f"{name} is not UTF-8, so it is read as {codec}: accented letters may be wrong.",
        {"encoding": codec},
        next_step="Look at the rows in the preview of the dataset. If letters are wrong, set the encoding "
        "(data.encoding), or save the file as UTF-8.",
    )


def _findings(counts: FileCounts, limit: int, *, cut: bool) -> list[Finding]:
    """What a person should know about the rows of a file that is read."""
    found = []
    problems, name = counts.problems, counts.name
    for refused, what in (
        (problems.rows_refused, "cannot be used"),
        (problems.remarks, "are used, but need a check"),
    ):
        if refused:
            fatal = what == "cannot be used"
            first = [each for each in problems.first if each.fatal == fatal]
            named = "; ".join(f"{each.where} {each.reason}" for each in first[:_NAMED])
            more = " …" if refused > _NAMED else ""
            found.append(
                Finding(
                    "rows_unused" if fatal else "rows_to_check",
                    "warning",
                    f"{name}: {refused:,} of {counts.rows:,} rows {what}: {named}{more or '.'}",
                    next_step="Check the columns of the dataset, and correct or remove these rows."
                    if fatal
                    else "Look at these rows in the preview of the dataset.",
                )
            )
    if counts.too_long:
        row_names = ", ".join(counts.long_row_names) + (
            " …" if counts.too_long > len(counts.long_row_names) else ""
        )
        one = counts.too_long == 1
        examples = "example is" if one else "examples are"
        what = f"{'was' if one else 'were'} {'truncated' if cut else 'skipped'}"
        found.append(
            Finding(
                "rows_truncated",
                "warning",
                f"{name}: {counts.too_long:,} {examples} longer than {limit:,} tokens and {what} "
                f"({counts.tokens_lost:,} tokens removed; {row_names}).",
                next_step="Raise the max sequence length, or split the long rows.",
            )
        )
    if counts.guessed_encoding is not None:
        found.append(encoding_finding(name, counts.guessed_encoding))
    if counts.unused_columns:
        found.append(
            Finding(
                "columns_unused",
                "info",
                f"{name}: these columns are not used: {', '.join(counts.unused_columns)}.",
                next_step="Map a column to a field if the model should see it.",
            )
        )
    return found
