"""preview: a page of rows, raw and as the model will see them, trained pieces marked.

A RowIndex says where every so many rows begin, so that a page of a large file is read without what is before
it. It lies beside the file (`data.jsonl.rows`), is written whole or not at all, and counts for nothing once
the file's size or time, or the way it is read, has changed. Parquet needs none.
"""

import json
import secrets
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubloom.datasets.model_files import ModelFiles
from gpubloom.datasets.parquet import count_rows
from gpubloom.datasets.problems import RowProblem
from gpubloom.datasets.rendering import Piece, render
from gpubloom.datasets.rows import Row, Start
from gpubloom.datasets.shaping import Mapping, to_example
from gpubloom.datasets.source import Source
from gpubloom.datasets.template import ChatTemplate
from gpubloom.errors import InputError

_VERSION = 1
# A page costs at most the reading of so many rows or so many bytes (and one row) before it.
_EVERY_ROWS = 256
_EVERY_BYTES = 1 << 20


@dataclass
class RowIndex:
    """Grows while rows are read; then answers where to begin for a row."""

    rows: int
    numbers: "array[int]"
    lines: "array[int]"
    offsets: "array[int]"

    @classmethod
    def empty(cls) -> "RowIndex":
        return cls(0, array("Q"), array("Q"), array("Q"))

    def add(self, row: Row) -> None:
        """Takes note of a row; rows come in order."""
        self.rows = row.number
        if (
            not self.numbers
            or row.number - self.numbers[-1] >= _EVERY_ROWS
            or row.offset - self.offsets[-1] >= _EVERY_BYTES
        ):
            self.numbers.append(row.number)
            self.lines.append(row.line or 1)
            self.offsets.append(row.offset)

    def start_for(self, number: int) -> Start | None:
        """The nearest known beginning at or before a row."""
        index = bisect_right(self.numbers, number) - 1
        if index < 0:
            return None
        return Start(self.numbers[index], self.lines[index], self.offsets[index])

    def save(self, source: Source) -> bool:
        """Writes the index beside the file; False where the folder cannot be written."""
        header = json.dumps({**_identity(source), "rows": self.rows, "entries": len(self.numbers)}).encode()
        target = index_path(source.path)
        partial = target.with_name(f".{secrets.token_hex(8)}.rows")
        try:
            with partial.open("xb") as file:
                file.write(header + b"\n")
                for part in (self.numbers, self.lines, self.offsets):
                    file.write(part.tobytes())
            partial.replace(target)
        except OSError:
            partial.unlink(missing_ok=True)
            return False
        return True

    @classmethod
    def load(cls, source: Source) -> "RowIndex | None":
        """The index beside the file, if it is there and about this very file."""
        try:
            with index_path(source.path).open("rb") as file:
                header = json.loads(file.readline(10_000))
                content = file.read()
            rows, entries = header.pop("rows"), header.pop("entries")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if header != _identity(source) or len(content) != 24 * entries:
            return None
        parts = [array("Q", content[8 * entries * part : 8 * entries * (part + 1)]) for part in range(3)]
        return cls(rows, *parts)


def index_path(path: Path) -> Path:
    return path.with_name(path.name + ".rows")


def build_index(source: Source) -> RowIndex:
    """Reads the file once, without parsing where rows are lines."""
    index = RowIndex.empty()
    for row in source.rows(parse=False):
        index.add(row)
    return index


def row_start(source: Source, number: int, *, keep: bool = True) -> Start:
    """Where to begin reading for a row; builds and writes the index when it is needed and not there."""
    if source.kind == ".parquet":
        return Start(number, 1, number - 1)
    if number <= _EVERY_ROWS:
        return source.start
    index = RowIndex.load(source)
    if index is None:
        index = build_index(source)
        if keep:
            index.save(source)
    return index.start_for(number) or source.start


def known_rows(source: Source) -> int | None:
    """How many rows the file has, when that can be said without reading it."""
    if source.kind == ".parquet":
        return count_rows(source.path)
    index = RowIndex.load(source)
    return None if index is None else index.rows


def _identity(source: Source) -> dict[str, Any]:
    about = source.path.stat()
    return {
        "version": _VERSION,
        "size": about.st_size,
        "changed": about.st_mtime_ns,
        "kind": source.kind,
        "codec": source.encoding.codec if source.encoding else None,
        "delimiter": source.table.delimiter if source.table else None,
    }


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """One row; `problem` says why it cannot be used, `remarks` what to know although it can."""

    number: int
    line: int | None
    raw: dict[str, Any] | str | None
    pieces: tuple[Piece, ...] = ()
    tokens: int | None = None
    trained_tokens: int | None = None
    problem: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Rows after the first `offset` ones; `total` is None as long as nobody has counted them."""

    offset: int
    rows: tuple[PreviewRow, ...]
    total: int | None


def preview(
    source: Source,
    *,
    mapping: Mapping | None,
    offset: int = 0,
    limit: int = 20,
    model: ModelFiles | None = None,
    keep_index: bool = True,
) -> Page:
    """So many rows after the first `offset` ones. Without a model, the plain template is used. An index that
    has to be built is written beside the file, unless `keep_index` says no."""
    if offset < 0 or limit < 1:
        raise InputError("invalid_page", "A page must start at row 0 or later and have at least one row.")
    first = offset + 1
    template = model.template if model else ChatTemplate.plain()
    shown = []
    for row in source.rows(row_start(source, first, keep=keep_index)):
        if row.number < first:
            continue
        shown.append(_show(row, mapping, template, model))
        if len(shown) == limit:
            break
    return Page(offset, tuple(shown), known_rows(source))


def _show(row: Row, mapping: Mapping | None, template: ChatTemplate, model: ModelFiles | None) -> PreviewRow:
    if row.values is None:
        return PreviewRow(row.number, row.line, row.beginning, problem=row.problem)
    if mapping is None:
        return PreviewRow(row.number, row.line, row.values)
    try:
        example = to_example(row.values, mapping)
        # Only to find what the inspection would find as well.
        example.digest()
        rendered = render(example, template)
    except RowProblem as problem:
        return PreviewRow(row.number, row.line, row.values, problem=str(problem))
    tokens = trained = None
    if model is not None:
        encoded = model.tokenizer.encode(rendered)
        tokens, trained = len(encoded), encoded.trained_count
    return PreviewRow(
        row.number, row.line, row.values, rendered.pieces(), tokens, trained, remarks=rendered.remarks
    )
