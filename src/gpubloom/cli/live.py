"""The progress of a run that a command has just started: a bar in a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpubloom.cli.run_view import RunView, numbers_line, status_line

_FRAME_SECONDS = 0.25
_PLAIN_LINE_SECONDS = 10.0


def follow(run_dir: Path, is_alive: Callable[[], bool], console: Console) -> RunView:
    """Shows the run until `is_alive` says that its process has ended; returns its last state.

    Without a terminal there is a line at the first loss, at every change of phase or attempt, then every ten
    seconds, and at the end.
    """
    view = RunView(run_dir)
    view.expect_new_attempt()
    show = _follow_in_terminal if console.is_terminal else follow_in_lines
    show(view, is_alive, console)
    return view


def _follow_in_terminal(view: RunView, is_alive: Callable[[], bool], console: Console) -> None:
    with Live(_bar(view), console=console, auto_refresh=False, transient=False) as live:
        while True:
            alive = is_alive()
            view.look()
            live.update(_bar(view), refresh=True)
            if not alive:
                return
            time.sleep(_FRAME_SECONDS)


def _bar(view: RunView) -> Table:
    state = view.state
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=state.total_steps or None, completed=state.step or 0, width=30)
    grid.add_row(bar, Text(status_line(view), no_wrap=True, overflow="ellipsis"))
    rows = Table.grid()
    rows.add_row(grid)
    rows.add_row(Text(numbers_line(view), style="bold", no_wrap=True, overflow="ellipsis"))
    for problem in view.problems:
        rows.add_row(Text(problem, style="yellow"))
    return rows


def follow_in_lines(view: RunView, is_alive: Callable[[], bool], console: Console) -> None:
    """Prints lines until `is_alive` says no."""
    last_line, last_situation, last_text = 0.0, _situation(view), ""
    while True:
        alive = is_alive()
        view.look()
        situation = _situation(view)
        due = time.monotonic() - last_line >= _PLAIN_LINE_SECONDS
        text = _line(view)
        if view.has_begun and (due or situation != last_situation or not alive) and text != last_text:
            console.print(text, markup=False, highlight=False, soft_wrap=True)
            last_line, last_text = time.monotonic(), text
        last_situation = situation
        if not alive:
            return
        time.sleep(_FRAME_SECONDS)


def _situation(view: RunView) -> tuple[object, ...]:
    state = view.state
    has_loss = "train/loss" in state.values and state.values["train/loss"]["step"] is not None
    return state.attempt, state.phase, state.status, has_loss


def _line(view: RunView) -> str:
    return " · ".join(part for part in (status_line(view), numbers_line(view)) if part)
