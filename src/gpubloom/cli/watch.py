"""`bloom runs watch RUN`: live charts of a run in the terminal."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.output import refuse
from gpubloom.errors import InputError, shell_word

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from gpubloom.cli.run_view import RunView

_FRAME_SECONDS = 0.5
_CHART_HEIGHT = 8
_CHARTS = (
    ("loss", "train/loss"),
    ("eval loss", "eval/loss"),
    ("learning rate", "train/learning_rate"),
    ("tokens/s", "train/tokens_per_second"),
)


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    once: Annotated[bool, typer.Option("--once", help="Print the current state once and exit.")] = False,
) -> None:
    """Watch a run: live charts of loss, learning rate and speed.

    Ctrl-C does not stop the run.
    """
    from gpubloom.cli.run_view import RunView, follow_in_lines, must_be_run
    from gpubloom.cli.tables import new_console

    console = new_console()
    try:
        view = RunView(must_be_run(run))
        if once:
            view.look()
            console.print(frame(view, console.width))
        elif console.is_terminal:
            _watch_in_terminal(view, console)
        else:
            view.look()
            follow_in_lines(view, lambda: view.is_alive, console)
    except InputError as problem:
        refuse(problem)
    except KeyboardInterrupt:
        console.print(
            f"The run continues. To watch it again: bloom runs watch {shell_word(run)}", soft_wrap=True
        )


def _watch_in_terminal(view: "RunView", console: "Console") -> None:
    from rich.live import Live

    view.look()
    with Live(frame(view, console.width), console=console, auto_refresh=False) as live:
        while view.is_alive or not view.has_begun:
            time.sleep(_FRAME_SECONDS)
            view.look()
            live.update(frame(view, console.width), refresh=True)


def frame(view: "RunView", width: int) -> "RenderableType":
    """The current state of a run."""
    from rich.console import Group
    from rich.text import Text

    from gpubloom.cli.run_view import age, numbers_line, status_parts, system_parts
    from gpubloom.cli.tables import wrap_parts

    lines: list[RenderableType] = [
        Text(str(view.run_dir), style="dim", overflow="fold"),
        Text("\n".join(wrap_parts(status_parts(view), width)), style="bold"),
    ]
    if view.rows_used:
        lines.append(Text(view.rows_used, style="yellow"))
    if numbers := numbers_line(view):
        lines.append(Text(numbers))
    if system := system_parts(view.state.system):
        lines.append(Text("\n".join(wrap_parts(system, width)), style="dim"))
    if view.has_begun and view.state.updated_at is not None:
        lines.append(Text(f"last event {age(view.state.updated_at)}", style="dim"))
    lines += _charts(view, width)
    lines += [Text(problem, style="yellow") for problem in view.findings]
    if error := view.state.error:
        lines.append(Text(f"{error['type']}: {error['message']}", style="bold red"))
        from gpubloom.traincard.causes import cause_and_advice

        if advice := cause_and_advice(error):
            lines.append(Text(advice))
    return Group(*lines)


def _charts(view: "RunView", width: int) -> "list[RenderableType]":
    from rich.table import Table

    shown = [(title, name) for title, name in _CHARTS if view.curves.attempts(name)]
    columns = 2 if width >= 100 else 1
    chart_width = width // columns - 2
    found: list[RenderableType] = []
    for start in range(0, len(shown), columns):
        row = Table.grid(padding=(0, 2, 0, 0))
        cells = [_chart(view, title, name, chart_width) for title, name in shown[start : start + columns]]
        row.add_row(*cells)
        found.append(row)
    return found


def _chart(view: "RunView", title: str, name: str, width: int) -> "Text":
    from rich.text import Text

    from gpubloom.cli.chart import Line, draw_together
    from gpubloom.cli.run_view import mean_line

    curves = list(view.curves.attempts(name).values())
    band = Line(
        [
            [((b.first_step + b.last_step) / 2, b.lowest), ((b.first_step + b.last_step) / 2, b.highest)]
            for curve in curves
            for b in curve.buckets
            if b.lowest < b.highest
        ]
    )
    explained = " (line: mean, shaded: lowest to highest)" if band.pieces else ""
    chart = Text(f"{title}{explained}", no_wrap=True)
    for row in draw_together([band, mean_line(curves)], width, _CHART_HEIGHT):
        chart.append("\n")
        for text, line in row:
            chart.append(text, style="dim" if line == 0 else "")
    return chart
