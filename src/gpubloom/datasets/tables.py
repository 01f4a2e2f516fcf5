"""CSV and TSV: quoted fields with line feeds in them, rows that do not match the header, quotes left open."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from gpubloom.datasets.encodings import Encoding
from gpubloom.datasets.lines import LONGEST_ROW_BYTES, Line, read_lines, too_long
from gpubloom.datasets.problems import NotADataset, RowProblem
from gpubloom.datasets.rows import Progress, Row, Start

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# After a quote that nobody closes, reading starts again one line further, but not without end.
_MOST_READ_AGAIN = 8 * LONGEST_ROW_BYTES


@dataclass(frozen=True, slots=True)
class Table:
    """The header of a table and where its rows begin."""

    columns: tuple[str, ...]
    delimiter: str
    start: Start
    note: str | None = None


class _Record:
    """Lines for the CSV reader, counted, so that a record's first line and size are known."""

    def __init__(self, file: BinaryIO, encoding: Encoding, start: Start, progress: Progress) -> None:
        self._lines = read_lines(file, encoding, offset=start.offset, number=start.line)
        self._encoding = encoding
        self._progress = progress
        self.first: Line | None = None
        self.size = 0

    def begin(self) -> None:
        self.first, self.size = None, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._progress.offset = line.offset + line.size
            self.first = self.first or line
            self.size += line.size
            text = line.text(self._encoding)
            if self.size > LONGEST_ROW_BYTES:
                raise RowProblem("row_too_long", f"{too_long(self.size)}: a closing quote may be missing")
            yield text


def open_table(file: BinaryIO, encoding: Encoding, *, suffix: str, delimiter: str | None) -> Table:
    """Reads the header."""
    record = _Record(file, encoding, Start(1, 1, encoding.mark), Progress())
    lines = list(_header_lines(record))
    note = None
    if delimiter is None:
        delimiter = _find_delimiter(lines[0] if lines else "", "\t" if suffix == ".tsv" else ",")
        if delimiter != ("\t" if suffix == ".tsv" else ","):
            note = f"The columns are separated by {_DELIMITERS[delimiter]}."
    try:
        columns = next(_reader(iter(lines), delimiter), [])
    except csv.Error as problem:
        raise NotADataset("invalid_header", f"The header (line 1) cannot be read: {problem}.") from None
    columns = [name.strip() for name in columns]
    if not any(columns):
        raise NotADataset(
            "invalid_header", "The first line is blank: the first line must contain the column names."
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        what = repr(twice[0]) if twice[0] else "nothing"
        raise NotADataset(
            "duplicate_column",
            f"Two columns are called {what} in the header (line 1). Give each column a different name.",
        )
    offset = encoding.mark + record.size
    return Table(tuple(columns), delimiter, Start(1, 1 + len(lines), offset), note)


def _header_lines(record: _Record) -> Iterator[str]:
    quotes = 0
    try:
        for text in record:
            yield text
            quotes += text.count('"')
            if quotes % 2 == 0:
                return
    except RowProblem as problem:
        raise NotADataset("invalid_header", f"The header (line 1) {problem}.") from None


def _find_delimiter(header: str, usual: str) -> str:
    outside = "".join(header.split('"')[::2])
    if usual in outside:
        return usual
    return max(_DELIMITERS, key=lambda sign: (outside.count(sign), sign == usual))


def _reader(lines: Iterator[str], delimiter: str) -> "Iterator[list[str]]":
    if csv.field_size_limit() < LONGEST_ROW_BYTES:
        # A limit of the whole process; rows are bounded here, by their bytes.
        csv.field_size_limit(LONGEST_ROW_BYTES)
    return csv.reader(lines, delimiter=delimiter, strict=True)


def read_table(
    file: BinaryIO, encoding: Encoding, table: Table, start: Start, progress: Progress
) -> Iterator[Row]:
    """The rows under the header. A record that cannot be read costs its own line, never the rest."""
    number, read_again = start.number, 0
    position: Start | None = start
    while position is not None:
        record = _Record(file, encoding, position, progress)
        reader = _reader(iter(record), table.delimiter)
        position = None
        while True:
            record.begin()
            try:
                fields = next(reader)
            except StopIteration:
                break
            except (csv.Error, RowProblem) as problem:
                first = record.first
                assert first is not None
                read_again += record.size - first.size
                reason = _reason(problem)
                stop = read_again > _MOST_READ_AGAIN
                if stop:
                    reason += "; too many quotes are not closed, so the rest of the file is ignored"
                yield Row(number, first.number, first.offset, None, reason, first.beginning(encoding))
                number += 1
                if not stop:
                    position = Start(number, first.number + 1, first.offset + first.size)
                break
            first = record.first
            assert first is not None
            if not fields:
                progress.blank_lines += 1
                continue
            yield _row(fields, table.columns, number, first, encoding)
            number += 1


def _row(fields: list[str], columns: tuple[str, ...], number: int, first: Line, encoding: Encoding) -> Row:
    if len(fields) != len(columns):
        reason = f"has {len(fields)} fields, but the header has {len(columns)} columns"
        return Row(number, first.number, first.offset, None, reason, first.beginning(encoding))
    return Row(number, first.number, first.offset, dict(zip(columns, fields, strict=True)))


def _reason(problem: Exception) -> str:
    if isinstance(problem, RowProblem):
        return str(problem)
    text = str(problem)
    if "unexpected end of data" in text:
        return "opens a quote that is never closed"
    if "expected after" in text:
        return "has characters after a closing quote; write a quote inside a field twice"
    return f"cannot be read: {text}"
