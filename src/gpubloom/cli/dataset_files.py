"""`bloom datasets inspect`, `preview`, `convert`, `pull`: dataset files on this machine, without a server."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import echo, fetching, json_text, refuse, size_text
from gpubloom.cli.tables import print_table
from gpubloom.errors import InputError, shell_word

if TYPE_CHECKING:
    from rich.text import Text

    from gpubloom.datasets import Lengths, Mapping, ModelFiles, Page, ProblemLog, Report, Source

File = Annotated[Path, typer.Argument(help="Dataset file: .jsonl, .json, .csv, .tsv, .txt or .parquet.")]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Column of a field, such as prompt=question or output=list[0].answer; repeat for each field.",
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(
        help="Model folder, run directory or tokenizer.json, to count tokens and apply the chat template."
    ),
]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        help="utf-8, utf-16-le, utf-16-be, windows-1252 or latin-1. Set it if the detected one is wrong."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EvalFraction = Annotated[
    float, typer.Option(min=0.0, max=0.99, help="Share of the examples for the eval split, such as 0.05.")
]
Seed = Annotated[int, typer.Option(help="Random seed of the eval split.")]


def inspect_file(
    file: File,
    tokenizer: TokenizerOption = None,
    mapping: MapOption = None,
    context_length: Annotated[
        int | None, typer.Option(min=1, help="Max sequence length: list the rows with more tokens than this.")
    ] = None,
    eval_fraction: EvalFraction = 0.0,
    seed: Seed = 0,
    encoding: EncodingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the format, columns, lengths, duplicates and errors of a dataset file."""
    from gpubloom.datasets import Split, inspect

    try:
        report = inspect(
            _open(file, encoding),
            mapping=_mapping(mapping),
            model=_model(tokenizer),
            context_length=context_length,
            split=Split(eval_fraction, seed),
            save_index=False,
        )
    except ValueError as problem:
        refuse(problem)
    if as_json:
        echo(_as_json(report))
    else:
        _print(report_lines(report))
    if report.examples == 0:
        raise typer.Exit(1)


def preview(
    file: File,
    page: Annotated[int, typer.Option(min=1, help="Page to show.")] = 1,
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="Rows per page.")] = 5,
    tokenizer: TokenizerOption = None,
    mapping: MapOption = None,
    encoding: EncodingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show rows as stored and as the model sees them.

    Trained tokens are marked with ⟦ ⟧.
    """
    from gpubloom.datasets import preview as read_page

    try:
        source = _open(file, encoding)
        found = read_page(
            source,
            mapping=_mapping(mapping) or _detected(source),
            offset=(page - 1) * rows,
            limit=rows,
            model=_model(tokenizer),
            keep_index=False,
        )
    except ValueError as problem:
        refuse(problem)
    if as_json:
        echo(_as_json(found))
    else:
        _print(page_lines(found))


def convert(
    file: File,
    target: Annotated[Path, typer.Argument(help=".jsonl file to write.")],
    mapping: MapOption = None,
    eval_target: Annotated[
        Path | None,
        typer.Option("--eval", help="Second .jsonl file, for the eval split. Requires --eval-fraction."),
    ] = None,
    eval_fraction: EvalFraction = 0.0,
    seed: Seed = 0,
    encoding: EncodingOption = None,
) -> None:
    """Convert a dataset file to chat messages: one JSON object per line."""
    from gpubloom.datasets import Split
    from gpubloom.datasets import convert as write

    try:
        if eval_target is not None and not eval_fraction:
            raise InputError(
                "invalid_option", "--eval requires --eval-fraction, such as --eval-fraction 0.05."
            )
        for new in filter(None, (target, eval_target)):
            # A pipe or device would be replaced by a file.
            if new.exists() and not new.is_dir():
                raise InputError("file_exists", f"{new} already exists: choose a new file.")
            if new.suffix.lower() not in {".jsonl", ".json", ""}:
                raise InputError(
                    "wrong_suffix", f"{new} gets one JSON object per line: its name must end with .jsonl."
                )
        source = _open(file, encoding)
        chosen = _mapping(mapping) or _detected(source)
        done = write(source, chosen, target, eval_target=eval_target, split=Split(eval_fraction, seed))
    except ValueError as problem:
        refuse(problem)
    eval_split = "" if eval_target is None else f" and {done.eval:,} to {eval_target}"
    echo(f"Wrote {done.train:,} examples to {target}{eval_split}.")
    _print(problem_lines(done.problems))


def pull(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Well-known dataset such as shakespeare, or ORG/NAME or ORG/NAME@REVISION on Hugging Face. "
            "Without NAME: list the well-known datasets.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="New folder for a Hugging Face dataset, or parent folder for a well-known dataset. "
            "[default: data/NAME]"
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Configuration of a Hugging Face dataset, if it has several.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a Hugging Face dataset. [default: train]")
    ] = None,
    accept_change: Annotated[
        bool,
        typer.Option("--accept-change", help="Accept a well-known dataset whose checksum has changed."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Download a dataset: a well-known dataset by name, or one split from Hugging Face."""
    try:
        if name is None:
            _list_well_known(as_json=as_json)
        elif "/" in name:
            if accept_change:
                raise InputError("invalid_option", "--accept-change is only for well-known datasets.")
            _pull_from_hub(name, to, config, split, as_json=as_json)
        else:
            if config is not None or split is not None:
                raise InputError("invalid_option", "--config and --split are only for Hugging Face datasets.")
            _pull_well_known(name, to or Path("data"), accept_change=accept_change, as_json=as_json)
    except ValueError as problem:
        refuse(problem)


def _list_well_known(*, as_json: bool) -> None:
    from gpubloom.datasets.named import named_datasets

    every = named_datasets().values()
    if as_json:
        echo(json.dumps([dataclasses.asdict(each) for each in every], indent=2))
        return
    print_table(
        {"name": "id", "title": "text", "licence": "text"},
        [(each.name, each.title, each.licence) for each in every],
    )


def _pull_from_hub(
    name: str, to: Path | None, config: str | None, split: str | None, *, as_json: bool
) -> None:
    from gpubloom.hub.fetching import fetch_dataset

    repository, _, revision = name.partition("@")
    folder = Path("data", repository.rpartition("/")[2]) if to is None else to
    with fetching(name) as progress:
        found = fetch_dataset(
            repository,
            folder.expanduser().absolute(),
            config=config,
            split=split,
            revision=revision or None,
            progress=progress,
        )
    _print_pulled(found, found.path, as_json=as_json)


def _pull_well_known(name: str, folder: Path, *, accept_change: bool, as_json: bool) -> None:
    from gpubloom.datasets.named import prepare_named

    with fetching(name) as progress:
        found = prepare_named(
            name, folder.expanduser().absolute(), progress=progress, accept_change=accept_change
        )
    _print_pulled(found, found.folder, as_json=as_json)


def _print_pulled(found: Any, path: Path, *, as_json: bool) -> None:
    for note in found.notes:
        echo(note, err=True)
    echo(_as_json(found) if as_json else path)


def _open(file: Path, encoding: str | None) -> "Source":
    from gpubloom.datasets import Source

    return Source.open(file, encoding=encoding)


def _model(path: Path | None) -> "ModelFiles | None":
    from gpubloom.datasets import ModelFiles

    if path is None:
        return None
    is_run = (path / "train.py").is_file() and (path / "model").is_dir()
    return ModelFiles.load(path / "model" if is_run else path)


def _mapping(assignments: list[str] | None) -> "Mapping | None":
    from gpubloom.datasets import Mapping

    columns = mapped_columns(assignments)
    return Mapping.by_hand(columns) if columns else None


def mapped_columns(assignments: list[str] | None) -> dict[str, str]:
    """The column of each field, as --map gives them."""
    columns = {}
    for assignment in assignments or []:
        field, sign, column = assignment.partition("=")
        if not sign or not field or not column:
            raise InputError(
                "invalid_option", f"--map requires FIELD=COLUMN, such as prompt=question, not {assignment!r}."
            )
        columns[field.strip()] = column
    return columns


def _detected(source: "Source") -> "Mapping":
    from gpubloom.datasets import advice, detect, sample

    rows = sample(source)
    if not rows:
        raise InputError(
            "no_examples",
            f"No row of {source.path.name} can be read. Find out why: "
            f"bloom datasets inspect {shell_word(source.path)}",
        )
    found = detect(rows)
    if found.mapping is None or not found.is_sure:
        raise InputError(
            "format_uncertain",
            f"The format is not certain. {found.reason} {advice(found, rows)}",
        )
    return found.mapping


def _as_json(value: Any) -> str:
    return json_text(dataclasses.asdict(value))


def _print(lines: list[Any]) -> None:
    from gpubloom.cli.tables import new_console

    console = new_console()
    for line in lines:
        console.print(line, soft_wrap=True)


_BAR = 40
_RAW_SHOWN = 400


def report_lines(report: "Report") -> "list[Text | str]":
    """The report of a file as lines of text."""
    encoding = f", {report.encoding}" if report.encoding else ""
    count = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
    lines: list[Text | str] = [
        f"{report.name}: {count}, {size_text(report.size)}{encoding}",
        *report.notes,
    ]
    if report.blank_lines:
        lines.append(f"Blank lines (skipped): {report.blank_lines:,}.")
    if report.columns:
        lines += ["", "Columns"]
    for column in report.columns:
        types = ", ".join(column.types) or "empty in every row"
        share = column.filled / max(1, column.filled + column.missing)
        unused = ", not used" if column.name in report.unused_columns else ""
        lines.append(f"  {_printable(column.name)}: {types}, filled in {share:.0%} of the rows{unused}")
    lines += ["", _format_line(report)]
    if report.mapping is not None:
        split = (
            f" ({report.train:,} in the train split, {report.eval:,} in the eval split)"
            if report.eval
            else ""
        )
        examples = "1 example" if report.examples == 1 else f"{report.examples:,} examples"
        lines.append(f"{examples} can be used for training{split}.")
    if report.lengths is not None and report.examples:
        lines += ["", *_length_lines(report.lengths)]
    if report.duplicates is not None and report.duplicates.repeated:
        lines += ["", f"Duplicate rows: {report.duplicates.repeated:,}"]
        for rows in report.duplicates.first[:5]:
            lines.append("  rows " + ", ".join(f"{row:,}" for row in rows))
    return [*lines, *problem_lines(report.problems)]


def problem_lines(problems: "ProblemLog") -> "list[Text | str]":
    """The number of problems by kind, and the first ones with their lines."""
    if not problems.first:
        return []
    lines: list[Text | str] = [""]
    if problems.rows_refused:
        lines.append(f"Rows that cannot be used: {problems.rows_refused:,}")
    if problems.remarks:
        lines.append(f"Warnings for rows that can be used: {problems.remarks:,}")
    lines += [f"  {problem.where} {_printable(problem.reason)}." for problem in problems.first]
    more = problems.rows_refused + problems.remarks - len(problems.first)
    if more:
        lines.append(f"  and {more:,} more. Number of problems by kind:")
        kinds = sorted(problems.kinds.items(), key=lambda kind: -kind[1])
        lines += [f"  {count:,} × {_printable(kind)}" for kind, count in kinds[:10]]
    return lines


def page_lines(page: "Page") -> "list[Text | str]":
    """Raw rows, and below each the text that the model sees; trained tokens are green and in ⟦ ⟧."""
    from rich.text import Text

    of = "" if page.total is None else f" of {page.total:,}"
    if not page.rows:
        return [f"The file has no rows after row {page.offset:,}."]
    lines: list[Text | str] = []
    for row in page.rows:
        lines.append(f"Row {row.number:,}{of}" + ("" if row.line is None else f" (line {row.line:,})"))
        raw = row.raw if isinstance(row.raw, str) else json.dumps(row.raw, ensure_ascii=False, default=str)
        lines.append(f"  {_printable(raw[:_RAW_SHOWN])}" + (" …" if len(raw) > _RAW_SHOWN else ""))
        shown = Text("  ")
        for piece in row.pieces:
            text = _printable(piece.text).replace("\n", "\n  ")
            shown.append(f"⟦{text}⟧" if piece.trained else text, style="green" if piece.trained else "dim")
        if row.pieces:
            lines.append(shown)
        if row.tokens is not None:
            lines.append(f"  {row.tokens:,} tokens, {row.trained_tokens:,} of them trained")
        lines += [f"  This row {said}." for said in (*filter(None, [row.problem]), *row.remarks)]
        lines.append("")
    return lines


def _printable(text: str) -> str:
    """Text from a file must not contain control sequences for the terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)


def _format_line(report: "Report") -> str:
    from gpubloom.datasets import advice

    found = report.detection
    if report.rows == 0:
        return "The file has no rows: there is nothing to train on."
    if not report.columns:
        return "No row can be read. The reasons are listed below."
    if report.mapping is None:
        columns = {column.name: None for column in report.columns}
        return f"Format: not certain. {found.reason} {advice(found, [columns])}"
    if found.mapping != report.mapping:
        return f"Format: {report.mapping.format}, as set with --map."
    return f"Format: {report.mapping.format} (confidence {found.confidence:.0%}). {found.reason}"


def _length_lines(lengths: "Lengths") -> "list[Text | str]":
    lines: list[Text | str] = [
        f"{lengths.total:,} {lengths.unit}, {lengths.trained:,} of them trained. "
        f"50% of the rows have at most {lengths.median:,} {lengths.unit}, "
        f"95% have at most {lengths.percentile_95:,}."
    ]
    bars = {f"{bar.begin:,}–{bar.end - 1:,}": bar.rows for bar in lengths.histogram if bar.rows}
    most, width = max(bars.values()), max(map(len, bars))
    for label, rows in bars.items():
        lines.append(f"  {label:>{width}} {'█' * -(-rows * _BAR // most):<{_BAR}} {rows:,}")
    row, length = lengths.longest[0]
    lines.append(f"Longest row: row {row:,} with {length:,} {lengths.unit}.")
    if lengths.too_long:
        named = ", ".join(f"{row:,}" for row in lengths.first_too_long[:10])
        lines.append(f"{lengths.too_long:,} rows are longer than the max sequence length: {named} …")
    return lines
