"""Row: what every reader gives, and the readers of files whose rows are lines."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from gpubloom.datasets.encodings import Encoding
from gpubloom.datasets.lines import LONGEST_ROW_BYTES, Line, read_lines, too_long
from gpubloom.datasets.problems import RowProblem


@dataclass(slots=True)
class Row:
    """One row: its values, or the reason why it has none."""

    number: int
    # Where it begins: the line in text formats, the byte offset (in parquet, the row) for coming back to it.
    line: int | None
    offset: int
    values: dict[str, Any] | None
    problem: str | None = None
    # The beginning of a row that could not be read.
    beginning: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins: the number, line and offset of the next row."""

    number: int
    line: int
    offset: int


@dataclass(slots=True)
class Progress:
    """How far reading has come; whoever reads may look at it at any time."""

    offset: int = 0
    blank_lines: int = 0


def read_json_lines(
    file: BinaryIO, encoding: Encoding, start: Start, progress: Progress, *, parse: bool = True
) -> Iterator[Row]:
    """One JSON object a line. Without `parse`, rows are only counted and placed."""
    number = start.number
    for line in read_lines(file, encoding, offset=start.offset, number=start.line):
        progress.offset = line.offset + line.size
        if _is_blank(line, encoding):
            progress.blank_lines += 1
            continue
        yield _json_row(line, number, encoding) if parse else Row(number, line.number, line.offset, None)
        number += 1


def _json_row(line: Line, number: int, encoding: Encoding) -> Row:
    try:
        values = parse_object(line.text(encoding))
    except RowProblem as problem:
        return Row(number, line.number, line.offset, None, str(problem), line.beginning(encoding))
    return Row(number, line.number, line.offset, values)


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object; everything else is a problem of its row."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise RowProblem(
            "row_not_json", f"is not JSON: {problem.msg} at character {problem.pos + 1}"
        ) from None
    except RecursionError:
        raise RowProblem("row_not_json", "cannot be read: its JSON is nested too deeply") from None
    except ValueError as problem:
        # A number of thousands of digits.
        raise RowProblem("row_not_json", f"cannot be read: {problem}") from None
    if not isinstance(value, dict):
        raise RowProblem("row_not_object", f"is {type_name(value)}, not a JSON object with columns")
    return value


def type_name(value: object) -> str:
    """The type of a value in words, with its article."""
    match value:
        case None:
            return "nothing"
        case str():
            return "a text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case bytes():
            return "binary data"
        case _:
            return f"a {type(value).__name__}"


def read_text_lines(file: BinaryIO, encoding: Encoding, start: Start, progress: Progress) -> Iterator[Row]:
    """Every line that is not blank is a row."""
    number = start.number
    for line in read_lines(file, encoding, offset=start.offset, number=start.line):
        progress.offset = line.offset + line.size
        if _is_blank(line, encoding):
            progress.blank_lines += 1
            continue
        try:
            text = without_end(line.text(encoding))
        except RowProblem as problem:
            yield Row(number, line.number, line.offset, None, str(problem), line.beginning(encoding))
        else:
            yield Row(number, line.number, line.offset, {"text": text})
        number += 1


def read_paragraphs(file: BinaryIO, encoding: Encoding, start: Start, progress: Progress) -> Iterator[Row]:
    """What stands between blank lines is a row."""
    number = start.number
    block: list[Line] = []
    size = 0
    for line in read_lines(file, encoding, offset=start.offset, number=start.line):
        progress.offset = line.offset + line.size
        if not _is_blank(line, encoding):
            size += line.size
            if size <= LONGEST_ROW_BYTES or not block:
                block.append(line)
            continue
        progress.blank_lines += 1
        if block:
            yield _paragraph(block, size, number, encoding)
            number += 1
            block, size = [], 0
    if block:
        yield _paragraph(block, size, number, encoding)


def _paragraph(block: list[Line], size: int, number: int, encoding: Encoding) -> Row:
    first = block[0]
    try:
        if size > LONGEST_ROW_BYTES:
            raise RowProblem("row_too_long", too_long(size))
        text = without_end("".join(line.text(encoding).replace("\r\n", "\n") for line in block))
    except RowProblem as problem:
        return Row(number, first.number, first.offset, None, str(problem), first.beginning(encoding))
    return Row(number, first.number, first.offset, {"text": text})


def without_end(text: str) -> str:
    """A line without its line end."""
    return text.removesuffix("\n").removesuffix("\r")


def _is_blank(line: Line, encoding: Encoding) -> bool:
    if line.size > 64 or not line.is_whole:
        # Longer lines of nothing but spaces are read and reported as rows without content.
        return False
    if encoding.is_wide:
        return not line.content.decode(encoding.codec, "replace").strip(" \t\r\n\v\f")
    return line.content.isspace()
