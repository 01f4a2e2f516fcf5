"""Source: a file opened as rows. Opening looks at the beginning only; reading never holds more than a row.

A plug-in may read further kinds of files: an entry point, named after the ending without its dot, is a
function from a path to rows, which are mappings of columns to values. Where reading begins anew, the rows
before are read again and left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from gpubloom import plugins
from gpubloom.datasets.compression import (
    COMPRESSED,
    COMPRESSED_SUFFIXES,
    TEXT_SUFFIXES,
    inner_suffix,
    is_compressed,
    open_bytes,
)
from gpubloom.datasets.encodings import SNIFFED_BYTES, Encoding, find_encoding
from gpubloom.datasets.json_documents import Layout, find_layout, read_json_array
from gpubloom.datasets.parquet import open_parquet, read_parquet
from gpubloom.datasets.problems import NotADataset
from gpubloom.datasets.rows import (
    Progress,
    Row,
    Start,
    read_json_lines,
    read_paragraphs,
    read_text_lines,
    type_name,
)
from gpubloom.datasets.tables import Table, open_table, read_table

# Longer endings first: one ends with the other.
SUFFIXES = (*COMPRESSED_SUFFIXES, *TEXT_SUFFIXES, ".parquet")
TextRows = Literal["lines", "paragraphs"]
_BLANK_LINE = re.compile(r"\S[^\S\n]*\n[^\S\n]*\n\s*\S")


def plugged_suffixes() -> tuple[str, ...]:
    """Endings that installed packages read."""
    return tuple(f".{name}" for name in plugins.names("dataset_readers"))


def open_plugged(path: Path) -> None:
    """Whether there is a first row; NotADataset with a sentence where there is none."""
    if next(_values(path), None) is None:
        raise NotADataset("data_empty", f"{path.name} has no rows.")


def read_plugged(path: Path, start: Start, progress: Progress) -> Iterator[Row]:
    """All rows from a start on. A row's offset is its number, counted from 0."""
    for index, values in enumerate(islice(_values(path), start.offset, None), start.offset):
        progress.offset = index + 1
        if isinstance(values, Mapping):
            yield Row(index + 1, None, index, {str(name): value for name, value in values.items()})
        else:
            problem = f"is {type_name(values)}, not a mapping of columns to values"
            yield Row(index + 1, None, index, None, problem, str(values)[:200])


def _values(path: Path) -> Iterator[Any]:
    name = path.suffix.lower()[1:]
    read = 0
    try:
        for values in plugins.load("dataset_readers", name)(path):
            yield values
            read += 1
    except plugins.PluginProblem as problem:
        raise NotADataset(problem.code, str(problem)) from problem
    except Exception as problem:
        where = f"failed at row {read + 1} of {path.name}"
        failed = plugins.failed("dataset_readers", name, where, problem)
        raise NotADataset(failed.code, str(failed)) from problem


def shown_suffixes() -> tuple[str, ...]:
    """The endings in few words: a compressed file has that of its data and one of these."""
    plain = [suffix for suffix in readable_suffixes() if suffix not in COMPRESSED_SUFFIXES]
    return (*plain, "and, compressed,", *COMPRESSED)


def readable_suffixes() -> tuple[str, ...]:
    """Endings of files that are read here, those of plug-ins included."""
    return (*SUFFIXES, *(suffix for suffix in plugged_suffixes() if suffix not in SUFFIXES))


@dataclass(frozen=True, slots=True)
class Source:
    """A file and how its rows are read; `notes` say what was decided without being asked."""

    path: Path
    kind: str
    size: int
    encoding: Encoding | None
    notes: tuple[str, ...]
    start: Start
    table: Table | None = None
    layout: Layout | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        encoding: str | None = None,
        delimiter: str | None = None,
        text_rows: TextRows | None = None,
    ) -> "Source":
        """Recognises the file; raises NotADataset with a sentence when it holds no rows."""
        if path.is_dir():
            raise NotADataset("not_a_file", f"{path} is a folder: choose one file in it.")
        if not path.name.lower().endswith(readable_suffixes()):
            raise NotADataset(
                "wrong_suffix",
                f"{path.name} is not a supported dataset file: its name must end with one of "
                f"{' '.join(shown_suffixes())}.",
            )
        try:
            size = path.stat().st_size
            kind = inner_suffix(path) if size else path.suffix.lower()
            if size == 0:
                raise NotADataset("data_empty", f"{path.name} is empty.")
            if kind == ".parquet":
                open_parquet(path).close()
                return cls(path, kind, size, None, (), Start(1, 1, 0))
            if kind not in SUFFIXES:
                open_plugged(path)
                return cls(path, kind, size, None, (), Start(1, 1, 0))
            return _open_text(path, kind, size, find_encoding(path, encoding), delimiter, text_rows)
        except OSError as problem:
            raise NotADataset("unreadable_file", f"{path} cannot be read: {problem.strerror}.") from None

    def rows(
        self, start: Start | None = None, progress: Progress | None = None, *, parse: bool = True
    ) -> Iterator[Row]:
        """All rows, or those from a start on. `parse=False` only finds rows, where that is cheaper."""
        start, progress = start or self.start, progress or Progress()
        if self.encoding is None:
            read = read_parquet if self.kind == ".parquet" else read_plugged
            yield from read(self.path, start, progress)
            return
        with open_bytes(self.path, 1 << 18) as file:
            if self.table is not None:
                yield from read_table(file, self.encoding, self.table, start, progress)
            elif self.layout is not None and self.layout.kind != "lines":
                yield from read_json_array(file, self.encoding, self.layout, start, progress)
            elif self.kind == "paragraphs":
                yield from read_paragraphs(file, self.encoding, start, progress)
            elif self.kind == ".txt":
                yield from read_text_lines(file, self.encoding, start, progress)
            else:
                yield from read_json_lines(file, self.encoding, start, progress, parse=parse)


def _open_text(
    path: Path,
    kind: str,
    size: int,
    encoding: Encoding,
    delimiter: str | None,
    text_rows: TextRows | None,
) -> Source:
    if size <= encoding.mark and not is_compressed(path):
        raise NotADataset("data_empty", f"{path.name} contains only a byte order mark.")
    notes = [encoding.note]
    start, table, layout = Start(1, 1, encoding.mark), None, None
    with open_bytes(path) as file:
        if kind in {".csv", ".tsv"}:
            table = open_table(file, encoding, suffix=kind, delimiter=delimiter)
            start = table.start
            notes.append(table.note)
        elif kind == ".json":
            layout = find_layout(file, encoding)
            start = layout.start
            notes.append(layout.note)
        elif kind == ".txt":
            file.seek(encoding.mark)
            sample = file.read(SNIFFED_BYTES).decode(encoding.codec, "replace")
            if text_rows is None:
                paragraphs = _BLANK_LINE.search(sample) is not None
                notes.append(
                    "Blank lines separate the rows."
                    if paragraphs
                    else "Every line is a row, because there are no blank lines."
                )
            else:
                paragraphs = text_rows == "paragraphs"
            kind = "paragraphs" if paragraphs else kind
    said = tuple(note for note in notes if note is not None)
    return Source(path, kind, size, encoding, said, start, table, layout)
