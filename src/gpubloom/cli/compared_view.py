"""A comparison in the terminal: two tables and a chart."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubloom.cli.chart import draw_together, short
from gpubloom.cli.compared import Comparison

_COLOURS = ("cyan", "magenta", "yellow", "green", "red", "blue", "bright_cyan", "bright_magenta")
_CHART_HEIGHT = 12
_MOST_WIDTH = 120


def show(comparison: Comparison, series: str) -> None:
    """Print it."""
    console = Console(markup=False)
    table = _table(comparison)
    for difference in comparison.differences:
        table.add_row(difference.path, *(_value(value) for value in difference.values))
    if not comparison.differences:
        table.add_row("the configs are the same", *("" for _ in comparison.runs))
    table.add_section()
    table.add_row("status", *(run.status for run in comparison.runs))
    for name in comparison.runs[0].figures:
        figures = [run.figures[name] for run in comparison.runs]
        if any(figure is not None for figure in figures):
            table.add_row(name, *("–" if figure is None else short(figure) for figure in figures))
    console.print(table)
    console.print(Text(f"\n{series}"))
    lines = [run.curve for run in comparison.runs]
    for row in draw_together(lines, min(console.width, _MOST_WIDTH), _CHART_HEIGHT):
        text = Text(no_wrap=True)
        for part, owner in row:
            text.append(part, style="" if owner is None else _COLOURS[owner])
        console.print(text)


def _table(comparison: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for run, colour in zip(comparison.runs, _COLOURS, strict=False):
        # The colour of its curve below.
        table.add_column(Text(run.name, style=colour), justify="right", overflow="fold")
    return table


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
