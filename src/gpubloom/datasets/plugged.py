"""Files that a plug-in reads: a function from a path to rows, for one ending.

The entry point's name is the ending without its dot. Rows are mappings of columns to values; where reading
begins anew, the rows before are read again and left out.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from gpubloom import plugins
from gpubloom.datasets.problems import NotADataset
from gpubloom.datasets.rows import Progress, Row, Start, type_name


def plugged_suffixes() -> tuple[str, ...]:
    """Endings that installed packages read."""
    return tuple(f".{name}" for name in plugins.names("dataset_readers"))


def open_plugged(path: Path) -> None:
    """Whether there is a first row; NotADataset with a sentence where there is none."""
    if next(_values(path), None) is None:
        raise NotADataset(f"{path.name} has no rows.")


def read_plugged(path: Path, start: Start, progress: Progress) -> Iterator[Row]:
    """All rows from a start on. A row's offset is its place, counted from 0."""
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
        raise NotADataset(str(problem)) from problem
    except Exception as problem:
        where = f"failed at row {read + 1} of {path.name}"
        raise NotADataset(str(plugins.failed("dataset_readers", name, where, problem))) from problem
