"""What commands print besides their answer, all on standard error: a refusal, a failure, a progress bar."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer


def refuse(command: str, problem: object) -> NoReturn:
    """End a command whose input is wrong: `bloom COMMAND: PROBLEM`, exit code 2."""
    fail(f"bloom {command}: {problem}", code=2)


def fail(sentence: str, *, code: int = 1) -> NoReturn:
    """End the command with a sentence."""
    typer.echo(sentence, err=True)
    raise typer.Exit(code) from None


@contextmanager
def fetching(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar; call what it gives with the bytes that are there and those that will be."""
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
