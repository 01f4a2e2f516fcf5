"""preflight: what a run would train on, counted before it starts, through the trainer's own reader.

Rows, tokens and packed sequences are exact: `read_examples` is what the trainer reads with, and `best_fit` is
what it packs with. Everything that a person should know before a run becomes a finding.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpubloom.datasets.conversion import SplitName
from gpubloom.datasets.example_reader import (
    ExampleFile,
    FileCounts,
    PreparedExample,
    Reader,
    ReadExamples,
    ReadingOptions,
    encoding_finding,
    read_examples,
    template_finding,
)
from gpubloom.datasets.model_files import ModelFiles
from gpubloom.datasets.packing import best_fit, sequence_length
from gpubloom.datasets.problems import Problem
from gpubloom.traincard.findings import Finding, worst_first

# Below this share of used rows, a run trains on something else than its file.
_FEW_USED = 0.5
_MANY_TRUNCATED = 0.05
_MANY_DUPLICATES = 0.01
_SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class SideCounts:
    """One side of the split. `sequences`: rows of the trainer, each of which holds one or more examples."""

    examples: int
    tokens: int
    trained_tokens: int
    sequences: int
    longest: int


@dataclass(frozen=True, slots=True)
class FilePreflight:
    """What would become of the rows of one file."""

    name: str
    rows: int
    used: int
    unusable: int
    rejected_by_template: int
    truncated: int
    skipped_too_long: int
    tokens_removed: int
    unused_columns: tuple[str, ...]
    problems: tuple[Problem, ...]
    # How often an epoch trains an example of the file, and what it trains of the file in all.
    weight: float
    train_examples: int
    train_tokens: int


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a run would train and evaluate on."""

    train: SideCounts
    eval: SideCounts | None
    train_file: FilePreflight
    eval_file: FilePreflight | None
    # Further files that are trained together with the first.
    mixed_files: tuple[FilePreflight, ...]
    # Every sequence has this many positions.
    sequence_length: int
    truncated_share: float
    # Examples that repeat an earlier one of their file; examples to evaluate on that are trained too.
    duplicates: int
    overlap: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How a run stretches the positions of its model; without a factor, as far as its sequences need."""

    kind: str
    factor: float | None = None

    def positions(self, own: int, context_length: int) -> int:
        factor = self.factor or math.ceil(context_length / own)
        return int(own * max(1.0, factor))


@dataclass
class _Side:
    lengths: "array[int]" = field(default_factory=lambda: array("I"))
    trained: int = 0
    rows: int = 0
    digests: set[bytes] = field(default_factory=set)

    def add(self, example: PreparedExample, times: int) -> None:
        self.rows += 1
        self.lengths.extend([len(example.tokens)] * times)
        self.trained += example.tokens.predicted_count * times
        self.digests.add(example.digest)


def preflight(
    train: Sequence[ExampleFile],
    evaluation: ExampleFile | None,
    options: ReadingOptions,
    model: ModelFiles,
    *,
    packing: bool = True,
    rope: RopeScaling | None = None,
    reader: Reader = read_examples,
) -> Preflight:
    """Reads every file once. Raises InputError where a run could not start with them, and why."""
    sides: dict[SplitName, _Side] = {"train": _Side(), "eval": _Side()}
    read = reader(
        train, evaluation, options, model, lambda side, example, times: sides[side].add(example, times)
    )
    limit, length, counts = options.context_length, 0, {}
    for name, side in sides.items():
        if side.lengths:
            rows = best_fit(side.lengths, limit, together=packing)
            length = max(length, sequence_length(side.lengths, rows, limit))
            counts[name] = SideCounts(
                len(side.lengths), sum(side.lengths), side.trained, len(rows), max(side.lengths)
            )
    duplicates = sum(side.rows - len(side.digests) for side in sides.values())
    overlap = len(sides["train"].digests & sides["eval"].digests)
    files = _files(read)
    examples = sum(_examples(each, options) for each in files)
    return Preflight(
        train=counts["train"],
        eval=counts.get("eval"),
        train_file=_file(read.train[0], options),
        eval_file=None if read.eval is None else _file(read.eval, options),
        mixed_files=tuple(_file(each, options) for each in read.train[1:]),
        sequence_length=length,
        truncated_share=sum(each.too_long for each in files) / max(1, examples),
        duplicates=duplicates,
        overlap=overlap,
        findings=tuple(
            worst_first(
                [
                    *_context_findings(max(each.longest for each in counts.values()), options, model, rope),
                    *_findings(read, options, model, duplicates, overlap),
                ]
            )
        ),
    )


def _examples(counts: FileCounts, options: ReadingOptions) -> int:
    """The examples that could be read, also those that are skipped because they are too long."""
    return counts.used + (counts.too_long if options.too_long == "skip" else 0)


def _file(counts: FileCounts, options: ReadingOptions) -> FilePreflight:
    cut = options.too_long == "cut"
    return FilePreflight(
        name=counts.name,
        rows=counts.rows,
        used=counts.used,
        unusable=counts.problems.rows_refused,
        rejected_by_template=counts.rejected_by_template,
        truncated=counts.too_long if cut else 0,
        skipped_too_long=0 if cut else counts.too_long,
        tokens_removed=counts.tokens_lost,
        unused_columns=counts.unused_columns,
        problems=tuple(counts.problems.first[:_SHOWN_PROBLEMS]),
        weight=counts.weight,
        train_examples=counts.trained_examples,
        train_tokens=counts.trained_tokens,
    )


def _files(read: ReadExamples) -> list[FileCounts]:
    return [*read.train, *([] if read.eval is None else [read.eval])]


def _context_findings(
    longest: int, options: ReadingOptions, model: ModelFiles, rope: RopeScaling | None
) -> list[Finding]:
    if model.positions is None:
        return []
    if rope is not None:
        reach = rope.positions(model.positions, options.context_length)
        return [
            Finding(
                "rope_scaled",
                "info",
                f"RoPE scaling ({rope.kind}) stretches the {model.positions:,} positions of the model to "
                f"{reach:,}.",
                {"positions": model.positions, "scaled_positions": reach, "longest": longest},
                next_step="Compare evaluations of short and of long examples: scaling can change both.",
            )
        ]
    if longest <= model.positions:
        return []
    return [
        Finding(
            "context_beyond_model",
            "critical",
            f"The longest example has {longest:,} tokens, but the model knows {model.positions:,} positions "
            "and has not learned to attend beyond them.",
            {"longest": longest, "positions": model.positions},
            next_step=f"Set the max sequence length to {model.positions:,} or less, or choose a RoPE scaling "
            "(YaRN, dynamic or linear).",
        )
    ]


def _findings(
    read: ReadExamples, options: ReadingOptions, model: ModelFiles, duplicates: int, overlap: int
) -> list[Finding]:
    files = _files(read)
    found = [finding for each in files for finding in _file_findings(each, options)]
    if model.template.note is not None and read.has_conversations:
        found.append(template_finding(model.template.note))
    used = sum(each.used for each in files)
    if duplicates:
        verb = "repeats" if duplicates == 1 else "repeat"
        found.append(
            Finding(
                "rows_duplicated",
                "warning" if duplicates > _MANY_DUPLICATES * used else "info",
                f"{duplicates:,} of {used:,} examples {verb} an earlier one.",
                {"duplicates": duplicates, "examples": used},
                next_step="Remove the repeated rows unless they should count more.",
            )
        )
    if overlap:
        found.append(
            Finding(
                "eval_overlap",
                "warning",
                f"{overlap:,} of {read.sides['eval']:,} validation examples are also in the training data, "
                "so the eval loss looks better than it is.",
                {"overlap": overlap},
                next_step="Remove these rows from one of the two files.",
            )
        )
    if not read.sides["eval"]:
        why = (
            "The eval split fraction is 0."
            if options.eval_fraction == 0
            else "There are too few different examples for an eval split."
        )
        found.append(
            Finding(
                "not_evaluated",
                "warning",
                f"{why} The run is not evaluated.",
                next_step="Choose a validation dataset, or set the eval split fraction.",
            )
        )
    return found


def _file_findings(counts: FileCounts, options: ReadingOptions) -> list[Finding]:
    found = []
    name, unused = counts.name, counts.rows - counts.used
    evidence: dict[str, Any] = {"rows": counts.rows, "used": counts.used}
    rejected = counts.rejected_by_template
    if rejected:
        found.append(
            Finding(
                "rows_rejected",
                "critical" if rejected > _FEW_USED * counts.rows else "warning",
                f"The chat template of the model rejects {rejected:,} of {counts.rows:,} rows of {name}: "
                f"{_first(counts, 'row_refused_by_template')}.",
                {**evidence, "rejected": rejected},
                next_step="Change these rows, or choose a model whose chat template accepts them.",
            )
        )
    if unused > rejected:
        few = counts.used < _FEW_USED * counts.rows
        found.append(
            Finding(
                "few_rows_used" if few else "rows_unused",
                "critical" if few else "warning",
                f"Only {counts.used:,} of {counts.rows:,} rows of {name} can be used: {_first(counts)}.",
                evidence,
                next_step="Check the columns of the dataset, and correct or remove the rows.",
            )
        )
    if counts.too_long:
        examples = _examples(counts, options)
        share = counts.too_long / max(1, examples)
        what = "truncated" if options.too_long == "cut" else "skipped"
        verb = "is" if counts.too_long == 1 else "are"
        found.append(
            Finding(
                "rows_truncated",
                "warning" if share > _MANY_TRUNCATED or what == "skipped" else "info",
                f"{counts.too_long:,} of {examples:,} examples of {name} ({share:.1%}) {verb} longer "
                f"than {options.context_length:,} tokens and {verb} {what} "
                f"({counts.tokens_lost:,} tokens removed).",
                {"too_long": counts.too_long, "tokens_removed": counts.tokens_lost},
                next_step="Raise the max sequence length, or split the long rows.",
            )
        )
    if counts.guessed_encoding is not None:
        found.append(encoding_finding(name, counts.guessed_encoding))
    if counts.unused_columns:
        named = ", ".join(counts.unused_columns)
        one = len(counts.unused_columns) == 1
        found.append(
            Finding(
                "columns_unused",
                "info",
                f"{'This column' if one else 'These columns'} of {name} {'is' if one else 'are'} not used: "
                f"{named}.",
                {"columns": list(counts.unused_columns)},
                next_step="Map a column to a field if the model should see it.",
            )
        )
    return found


def _first(counts: FileCounts, code: str | None = None) -> str:
    fatal = [each for each in counts.problems.first if each.fatal]
    wanted = [each for each in fatal if code is None or each.code == code] or fatal
    if wanted:
        return f"{wanted[0].where} {wanted[0].reason}"
    return f"{counts.too_long:,} rows are too long"
