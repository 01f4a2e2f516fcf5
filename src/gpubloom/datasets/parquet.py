"""Parquet, through pyarrow: batch by batch, so that memory holds a few megabytes of a row group at a time.

A few bytes can stand for gigabytes here: one long value in a dictionary, and a million rows that point at it.
So the longest value of each dictionary decides how many rows are read at once; and where that is not enough,
texts stay in their dictionary until the size of a row is known.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from gpubloom.datasets.encodings import PARQUET
from gpubloom.datasets.lines import LONGEST_ROW_BYTES, too_long
from gpubloom.datasets.problems import NotADataset
from gpubloom.datasets.rows import Progress, Row, Start

_BATCH_BYTES = 4 << 20
_MOST_ROWS = 1_024
# What pyarrow raises over broken files besides its own exceptions: names that are no text, counts that lie.
_FAULTS = (OSError, ValueError, TypeError, LookupError, ArithmeticError)
_DICTIONARY_BYTES = 64 << 20
_MOST_GROWN_BYTES = 256 << 20


def open_parquet(path: Path) -> Any:
    """The file, its footer read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise NotADataset(
            "not_installed",
            f"Reading {path.name} needs pyarrow, which is not installed. Run: pip install 'gpubloom[data]'",
        ) from None
    with path.open("rb") as file:
        head = file.read(4)
    if head != PARQUET:
        raise NotADataset(
            "invalid_parquet", f"{path.name} is not a parquet file: it does not begin with PAR1."
        )
    try:
        return _open(path, [])
    except (pyarrow.ArrowException, *_FAULTS) as problem:
        raise NotADataset(
            "invalid_parquet", f"{path.name} cannot be read as parquet: {_sentence(problem)}."
        ) from None


def _open(path: Path, kept: list[str]) -> Any:
    """`kept` are the columns whose texts stay in their dictionaries."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=kept)


def count_rows(path: Path) -> int:
    """From the footer, without reading rows."""
    with closing(open_parquet(path)) as file:
        return int(file.metadata.num_rows)


def read_parquet(path: Path, start: Start, progress: Progress) -> Iterator[Row]:
    """Rows from `start.offset` on, which here is the number of rows before it."""
    import pyarrow

    with closing(open_parquet(path)) as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    before = 0
    for group, count in enumerate(groups):
        index, before = before, before + count
        if before <= start.offset:
            continue
        try:
            size, kept = _batches(path, group)
            with closing(_open(path, kept)) as file:
                for batch in file.iter_batches(batch_size=size, row_groups=[group]):
                    first = max(0, start.offset - index)
                    if first < batch.num_rows:
                        yield from _rows(batch.slice(first), index + first)
                    index += batch.num_rows
                    progress.offset = index
        except (pyarrow.ArrowException, *_FAULTS) as problem:
            reason = f"and the rest of its row group cannot be read: {_sentence(problem)}"
            yield Row(index + 1, None, index, None, reason)


def _batches(path: Path, group: int) -> tuple[int, list[str]]:
    """How many rows to read at once, and which columns could grow beyond measure even so."""
    with closing(_open(path, [])) as file:
        about = file.metadata.row_group(group)
        leaves = [file.schema.column(number) for number in range(about.num_columns)]
    texts = [(number, leaf) for number, leaf in enumerate(leaves) if leaf.physical_type == "BYTE_ARRAY"]
    kept, longest = [], 1
    with closing(_open(path, [leaf.path for _, leaf in texts])) as file:
        for number, leaf in texts:
            chunk = about.column(number)
            if not any("DICTIONARY" in encoding for encoding in chunk.encodings):
                continue
            batches = file.iter_batches(batch_size=1, row_groups=[group], columns=[leaf.path])
            first = next(batches, None)
            length = max((_longest(column) for column in first.columns), default=0) if first else 0
            if leaf.max_repetition_level == 0:
                if length > LONGEST_ROW_BYTES:
                    kept.append(leaf.path)
                else:
                    longest += length
            elif length * chunk.num_values > _MOST_GROWN_BYTES + 4 * chunk.total_uncompressed_size:
                kept.append(leaf.path)
    per_row = max(1, about.total_byte_size // max(1, about.num_rows))
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // per_row, _DICTIONARY_BYTES // longest)), kept


def _longest(array: Any) -> int:
    """The longest text in the dictionary of a column, however deep it lies."""
    import pyarrow
    import pyarrow.compute

    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        return pyarrow.compute.max(pyarrow.compute.binary_length(array.dictionary)).as_py() or 0
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_map(kind):
        return _longest(array.values if not pyarrow.types.is_map(kind) else array.items)
    if pyarrow.types.is_struct(kind):
        return max((_longest(array.field(number)) for number in range(kind.num_fields)), default=0)
    return 0


def _rows(batch: Any, index: int) -> Iterator[Row]:
    if _size(batch) <= LONGEST_ROW_BYTES:
        for row_index, values in enumerate(batch.to_pylist(), index):
            yield Row(row_index + 1, None, row_index, values)
        return
    for row_index in range(batch.num_rows):
        row = batch.slice(row_index, 1)
        size = _size(row)
        number = index + row_index
        if size > LONGEST_ROW_BYTES:
            yield Row(number + 1, None, number, None, too_long(size))
        else:
            yield Row(number + 1, None, number, row.to_pylist()[0])


def _size(batch: Any) -> int:
    """The bytes of all texts in a batch, once they are out of their dictionaries."""
    return sum(_text_size(column) for column in batch.columns)


def _text_size(array: Any) -> int:
    import pyarrow
    import pyarrow.compute

    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        lengths = pyarrow.compute.binary_length(array.dictionary).cast(pyarrow.int64())
        return pyarrow.compute.sum(lengths.take(array.indices)).as_py() or 0
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _text_size(array.flatten())
    if pyarrow.types.is_struct(kind):
        return sum(_text_size(field) for field in array.flatten())
    return int(array.nbytes)


def _sentence(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")
