"""`bloom data`: what is in a file of examples, what a model will see of it, and the same as messages."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import fetching, refuse
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from gpubloom.datasets import Lengths, Mapping, ModelFiles, Page, ProblemLog, Report, Source

app = typer.Typer(help="Look at files of examples before training on them.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="A .jsonl, .json, .csv, .tsv, .txt or .parquet file.")]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Which column is what: prompt=question, text=body …"),
]
TokenizerOption = Annotated[
    Path | None, typer.Option(help="A model folder or tokenizer.json: its template, its tokens.")
]
EncodingOption = Annotated[
    str | None, typer.Option(help="utf-8, utf-16-le, utf-16-be or latin-1, when the guess is wrong.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
EvalFraction = Annotated[float, typer.Option(min=0.0, max=0.99, help="The share of examples to hold out.")]
Seed = Annotated[int, typer.Option(help="Another seed holds out others.")]


@app.command("inspect")
def inspect_file(
    file: File,
    tokenizer: TokenizerOption = None,
    mapping: MapOption = None,
    context_length: Annotated[
        int | None, typer.Option(min=1, help="Name the rows with more tokens than this.")
    ] = None,
    eval_fraction: EvalFraction = 0.0,
    seed: Seed = 0,
    encoding: EncodingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a file holds: format, columns, lengths, duplicates, and every problem with its line."""
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
        typer.echo(_as_json(report))
    else:
        _print(report_lines(report))
    if report.examples == 0:
        raise typer.Exit(1)


@app.command()
def preview(
    file: File,
    page: Annotated[int, typer.Option(min=1, help="Which page.")] = 1,
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="How many rows a page has.")] = 5,
    tokenizer: TokenizerOption = None,
    mapping: MapOption = None,
    encoding: EncodingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show rows as they are and as the model will see them, with what is trained marked."""
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
        typer.echo(_as_json(found))
    else:
        _print(page_lines(found))


@app.command()
def convert(
    file: File,
    target: Annotated[Path, typer.Argument(help="The .jsonl file to write.")],
    mapping: MapOption = None,
    eval_target: Annotated[
        Path | None, typer.Option("--eval", help="A second .jsonl file for what is held out.")
    ] = None,
    eval_fraction: EvalFraction = 0.0,
    seed: Seed = 0,
    encoding: EncodingOption = None,
) -> None:
    """Write a file's examples as messages, one JSON object a line."""
    from gpubloom.datasets import Split
    from gpubloom.datasets import convert as write

    try:
        if eval_target is not None and not eval_fraction:
            raise InputError("invalid_option", "--eval needs --eval-fraction: how much is to be held out?")
        source = _open(file, encoding)
        chosen = _mapping(mapping) or _detected(source)
        done = write(source, chosen, target, eval_target=eval_target, split=Split(eval_fraction, seed))
    except ValueError as problem:
        refuse(problem)
    held_out = "" if eval_target is None else f", {done.eval:,} to {eval_target}"
    typer.echo(f"Wrote {done.train:,} examples to {target}{held_out}.")
    _print(problem_lines(done.problems))


@app.command()
def pull(
    dataset: Annotated[str, typer.Argument(help="A hub's id, such as ORG/NAME or ORG/NAME@REVISION.")],
    to: Annotated[Path, typer.Option(help="A new folder for the file.")],
    config: Annotated[str | None, typer.Option(help="Which configuration, when there are several.")] = None,
    split: Annotated[str | None, typer.Option(help="Which split. [default: train]")] = None,
) -> None:
    """Fetch a split of a hub's dataset as one file."""
    from gpubloom.hub.fetching import fetch_dataset

    repository, _, revision = dataset.partition("@")
    try:
        with fetching(dataset) as progress:
            found = fetch_dataset(
                repository,
                to.expanduser().absolute(),
                config=config,
                split=split,
                revision=revision or None,
                progress=progress,
            )
    except ValueError as problem:
        refuse(problem)
    for note in found.notes:
        typer.echo(note, err=True)
    typer.echo(found.path)


@app.command()
def fetch(
    name: Annotated[
        str | None, typer.Argument(help="A dataset by its name, such as shakespeare; none: list them.")
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder that gets a folder of that name.")] = Path("data"),
    accept_change: Annotated[
        bool, typer.Option("--accept-change", help="Take it though it is not what it was.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a well-known dataset once, checked, and put it where scripts read it."""
    from gpubloom.datasets.named import named_datasets, prepare_named

    try:
        if name is None:
            every = named_datasets().values()
            _print(
                [json.dumps([dataclasses.asdict(each) for each in every], indent=2)]
                if as_json
                else [f"{each.name:<18} {each.title} ({each.licence})" for each in every]
            )
            return
        with fetching(name) as progress:
            found = prepare_named(
                name, to.expanduser().absolute(), progress=progress, accept_change=accept_change
            )
    except ValueError as problem:
        refuse(problem)
    for note in found.notes:
        typer.echo(note, err=True)
    typer.echo(_as_json(found) if as_json else found.folder)


def _open(file: Path, encoding: str | None) -> "Source":
    from gpubloom.datasets import Source

    return Source.open(file, encoding=encoding)


def _model(path: Path | None) -> "ModelFiles | None":
    from gpubloom.datasets import ModelFiles

    return None if path is None else ModelFiles.load(path)


def _mapping(assignments: list[str] | None) -> "Mapping | None":
    from gpubloom.datasets import Mapping

    if not assignments:
        return None
    columns = {}
    for assignment in assignments:
        field, sign, column = assignment.partition("=")
        if not sign or not field or not column:
            raise InputError("invalid_option", f"--map takes FIELD=COLUMN, not {assignment!r}.")
        columns[field.strip()] = column
    return Mapping.by_hand(columns)


def _detected(source: "Source") -> "Mapping":
    from gpubloom.datasets import detect, sample

    rows = sample(source)
    if not rows:
        raise InputError(
            "no_examples", f"No row of {source.path.name} can be read: bloom data inspect says why."
        )
    found = detect(rows)
    if found.mapping is None or not found.is_sure:
        raise InputError(
            "format_uncertain",
            f"The format is not certain. {found.reason} Say which column is what with --map.",
        )
    return found.mapping


def _as_json(value: Any) -> str:
    return json.dumps(dataclasses.asdict(value), ensure_ascii=False, indent=2, default=str)


def _print(lines: list[Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


_BAR = 40
_RAW_SHOWN = 400


def report_lines(report: "Report") -> "list[Text | str]":
    """Everything a person needs to decide whether to train on the file."""
    encoding = f", {report.encoding}" if report.encoding else ""
    count = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
    lines: list[Text | str] = [
        f"{report.name}: {count}, {report.size / 1e6:,.1f} MB{encoding}",
        *report.notes,
    ]
    if report.blank_lines:
        lines.append(f"Blank lines, which are no rows: {report.blank_lines:,}.")
    if report.columns:
        lines += ["", "Columns"]
    for column in report.columns:
        types = ", ".join(column.types) or "always empty"
        share = column.filled / max(1, column.filled + column.missing)
        lines.append(f"  {_printable(column.name)}: {types}, filled in {share:.0%} of the rows")
    lines += ["", _format_line(report)]
    if report.mapping is not None:
        held_out = f" ({report.train:,} to train, {report.eval:,} held out)" if report.eval else ""
        lines.append(f"{report.examples:,} examples can be trained on{held_out}.")
    if report.lengths is not None and report.examples:
        lines += ["", *_length_lines(report.lengths)]
    if report.duplicates is not None and report.duplicates.repeated:
        lines += ["", f"Rows that repeat an earlier one: {report.duplicates.repeated:,}"]
        for rows in report.duplicates.first[:5]:
            lines.append("  rows " + ", ".join(f"{row:,}" for row in rows))
    return [*lines, *problem_lines(report.problems)]


def problem_lines(problems: "ProblemLog") -> "list[Text | str]":
    """How many, of which kinds, and the first ones with their lines."""
    if not problems.first:
        return []
    lines: list[Text | str] = [""]
    if problems.rows_refused:
        lines.append(f"Rows that cannot be used: {problems.rows_refused:,}")
    if problems.remarks:
        lines.append(f"Remarks on rows that can be used: {problems.remarks:,}")
    lines += [f"  {problem.where} {_printable(problem.reason)}." for problem in problems.first]
    more = problems.rows_refused + problems.remarks - len(problems.first)
    if more:
        lines.append(f"  and {more:,} more; by kind:")
        kinds = sorted(problems.kinds.items(), key=lambda kind: -kind[1])
        lines += [f"  {count:,} × {_printable(kind)}" for kind, count in kinds[:10]]
    return lines


def page_lines(page: "Page") -> "list[Text | str]":
    """Raw rows, and below each what the model sees; what is trained is green and stands in ⟦ ⟧."""
    from rich.text import Text

    of = "" if page.total is None else f" of {page.total:,}"
    if not page.rows:
        return [f"There are no rows after row {page.offset:,}."]
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
    """Text from a file must not steer the terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)


def _format_line(report: "Report") -> str:
    found = report.detection
    if report.rows == 0:
        return "There are no rows in it: there is nothing to train on."
    if not report.columns:
        return "No row could be read: the lines below say why."
    if report.mapping is None:
        return f"Format: not certain. {found.reason} Say which column is what with --map FIELD=COLUMN."
    if found.mapping != report.mapping:
        return f"Format: {report.mapping.format}, as you say."
    return f"Format: {report.mapping.format} ({found.confidence:.0%} sure). {found.reason}"


def _length_lines(lengths: "Lengths") -> "list[Text | str]":
    lines: list[Text | str] = [
        f"{lengths.total:,} {lengths.unit}, {lengths.trained:,} of them trained. "
        f"Half of the rows have fewer than {lengths.half_below:,}, "
        f"95 of 100 fewer than {lengths.most_below:,}."
    ]
    most = max(bar.rows for bar in lengths.histogram)
    for bar in lengths.histogram:
        label = f"{bar.begin:,}–{bar.end - 1:,}"
        lines.append(f"  {label:>17} {'█' * -(-bar.rows * _BAR // most):<{_BAR}} {bar.rows:,}")
    row, length = lengths.longest[0]
    lines.append(f"The longest is row {row:,} with {length:,} {lengths.unit}.")
    if lengths.too_long:
        rows = ", ".join(f"{row:,}" for row in lengths.first_too_long[:10])
        lines.append(f"{lengths.too_long:,} rows are too long for the context: {rows} …")
    return lines
