"""Parquet, through pyarrow: batch by batch, so that memory holds a few megabytes of a row group at a time."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from gpubloom.datasets.encodings import PARQUET
from gpubloom.datasets.problems import NotADataset
from gpubloom.datasets.rows import Progress, Row, Start

_BATCH_BYTES = 4 << 20
_MOST_ROWS = 1_024


def open_parquet(path: Path) -> Any:
    """The file, its footer read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise NotADataset(
            f"{path.name} needs the library pyarrow, which is not installed. Run: pip install pyarrow"
        ) from None
    with path.open("rb") as file:
        head = file.read(4)
    if head != PARQUET:
        raise NotADataset(f"{path.name} is not a parquet file: it does not begin with PAR1.")
    try:
        return pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except (pyarrow.ArrowException, OSError) as problem:
        raise NotADataset(f"{path.name} cannot be read as parquet: {_sentence(problem)}.") from None


def count_rows(path: Path) -> int:
    """From the footer, without reading rows."""
    with closing(open_parquet(path)) as file:
        return int(file.metadata.num_rows)


def read_parquet(file: Any, start: Start, progress: Progress) -> Iterator[Row]:
    """Rows from `start.offset` on, which here is the number of rows before it."""
    import pyarrow

    before = 0
    metadata = file.metadata
    for group in range(metadata.num_row_groups):
        about = metadata.row_group(group)
        if before + about.num_rows <= start.offset:
            before += about.num_rows
            continue
        per_row = max(1, about.total_byte_size // max(1, about.num_rows))
        size = max(1, min(_MOST_ROWS, _BATCH_BYTES // per_row))
        index = before
        try:
            for batch in file.iter_batches(batch_size=size, row_groups=[group]):
                first = max(0, start.offset - index)
                for values in batch.slice(first).to_pylist() if first < batch.num_rows else ():
                    yield Row(index + first + 1, None, index + first, values)
                    first += 1
                index += batch.num_rows
                progress.offset = index
        except (pyarrow.ArrowException, OSError) as problem:
            reason = f"and the rest of its row group cannot be read: {_sentence(problem)}"
            yield Row(index + 1, None, index, None, reason)
        before += about.num_rows


def _sentence(problem: Exception) -> str:
    return str(problem).strip().splitlines()[0].rstrip(".")
