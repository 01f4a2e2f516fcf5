"""Reports and pages of `bloom data` as lines for a terminal."""

import json
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from gpubloom.datasets import Lengths, Page, ProblemLog, Report

_BAR = 40
_RAW_SHOWN = 400


def report_lines(report: "Report") -> list[Text | str]:
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
    lines += ["", _format(report)]
    if report.mapping is not None:
        held_out = f" ({report.train:,} to train, {report.eval:,} held out)" if report.eval else ""
        lines.append(f"{report.examples:,} examples can be trained on{held_out}.")
    if report.lengths is not None and report.examples:
        lines += ["", *_lengths(report.lengths)]
    if report.duplicates is not None and report.duplicates.repeated:
        lines += ["", f"Rows that repeat an earlier one: {report.duplicates.repeated:,}"]
        for rows in report.duplicates.first[:5]:
            lines.append("  rows " + ", ".join(f"{row:,}" for row in rows))
    return [*lines, *problem_lines(report.problems)]


def problem_lines(problems: "ProblemLog") -> list[Text | str]:
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


def page_lines(page: "Page") -> list[Text | str]:
    """Raw rows, and below each what the model sees; what is trained is green and stands in ⟦ ⟧."""
    of = "" if page.total is None else f" of {page.total:,}"
    if not page.rows:
        return [f"Page {page.number} has no rows."]
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


def _format(report: "Report") -> str:
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


def _lengths(lengths: "Lengths") -> list[Text | str]:
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
