"""The output of a run while a command follows it: lines, and in a terminal a bar below them."""

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

    The lines of its output come as they are written; a terminal has a bar below them.
    """
    view = RunView(run_dir)
    view.expect_new_attempt()
    show = _follow_in_terminal if console.is_terminal else follow_in_lines
    show(view, is_alive, console)
    return view


def _follow_in_terminal(view: RunView, is_alive: Callable[[], bool], console: Console) -> None:
    view.new_lines()
    with Live(_bar(view), console=console, auto_refresh=False, transient=False) as live:
        while True:
            alive = is_alive()
            view.look()
            for line in view.new_lines():
                _print(line, live.console)
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
    for problem in (*([view.rows_used] if view.rows_used else []), *view.findings):
        rows.add_row(Text(problem, style="yellow"))
    return rows


def follow_in_lines(view: RunView, is_alive: Callable[[], bool], console: Console) -> None:
    """Prints the lines of the run's output until `is_alive` says no, and where the run stands at the end.

    Of a run that has begun, also where it stands now, and what it warned of so far; while it prints nothing,
    where it stands every ten seconds.
    """
    view.new_lines()
    last_line, last_text = time.monotonic(), ""
    if view.has_begun:
        for line in view.warnings:
            _print(line, console)
        last_text = _line(view)
        _print(last_text, console)
    while True:
        alive = is_alive()
        view.look()
        for line in view.new_lines():
            _print(line, console)
            last_line = time.monotonic()
        due = time.monotonic() - last_line >= _PLAIN_LINE_SECONDS
        text = _line(view)
        if view.has_begun and (due or not alive) and text != last_text:
            _print(text, console)
            last_line, last_text = time.monotonic(), text
        if not alive:
            return
        time.sleep(_FRAME_SECONDS)


def _print(line: str, console: Console) -> None:
    level = line.partition(":")[0]
    style = {"warning": "yellow", "error": "red"}.get(level)
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def _line(view: RunView) -> str:
    parts = (status_line(view), view.rows_used, numbers_line(view))
    return " · ".join(part for part in parts if part)
