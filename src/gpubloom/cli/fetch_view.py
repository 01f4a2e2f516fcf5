"""A progress bar for what is fetched, on the terminal's error side, so that answers stay clean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def fetching(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Within it, call what it gives with the bytes that are there and those that will be."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
