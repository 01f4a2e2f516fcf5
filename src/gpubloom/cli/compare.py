"""`bloom runs compare`: runs side by side, with the differences of their configs and their results.

The runs are run directories of this machine, or jobs of the server that `bloom auth login` stored.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

import typer

from gpubloom.cli.api_client import call
from gpubloom.cli.output import WRONG_INPUT, echo, fail, refuse

if TYPE_CHECKING:
    from rich.table import Table

    from gpubloom.cli.chart import Line
    from gpubloom.plan.comparison import Difference

_MOST = 8
_POINTS = 400
_COLOURS = ("cyan", "magenta", "yellow", "green", "red", "blue", "bright_cyan", "bright_magenta")
_CHART_HEIGHT = 12
_MOST_WIDTH = 120
# Numbers are shorter than this; longer text wraps.
_TEXT_WIDTH = 16


@dataclass(frozen=True)
class Run:
    """`figures` by their names, in the order they are shown; None where a run has none."""

    name: str
    status: str
    figures: dict[str, float | None]
    curve: "Line"


@dataclass(frozen=True)
class Comparison:
    """Runs, and the fields of their configs that are not the same in all; `metrics`, where they are known."""

    runs: list[Run]
    differences: "list[Difference]"
    metrics: Sequence[str] = ()


def compare(
    runs: Annotated[list[str], typer.Argument(help="2 to 8 run directories, or 2 to 8 job ids.")],
    series: Annotated[
        str, typer.Option(help="Metric to draw, such as train/loss or eval/loss.")
    ] = "train/loss",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Compare runs: config differences, results, and the curves of one metric in one chart."""
    if not 2 <= len(runs) <= _MOST:
        fail("invalid_option", f"Compare 2 to {_MOST} runs, not {len(runs)}.", status=WRONG_INPUT)
    if len(set(runs)) != len(runs):
        fail("same_run_twice", "The same run is named twice: name each run once.", status=WRONG_INPUT)
    comparison = _read_all(runs, series)
    if as_json:
        from gpubloom.traincard.number_encoding import plain

        echo(json.dumps(plain(_as_json(comparison)), indent=2))
        return
    _show(comparison, series)


def _read_all(runs: list[str], series: str) -> Comparison:
    ids = [run for run in runs if _is_job(run)]
    if len(ids) == len(runs):
        return compare_jobs(ids, series)
    if ids:
        fail(
            "invalid_option",
            f"{ids[0]} is a job id, the others are folders: compare either jobs or folders.",
            status=WRONG_INPUT,
        )
    try:
        return compare_directories([Path(run) for run in runs], series)
    except ValueError as problem:
        refuse(problem)


def _is_job(run: str) -> bool:
    # A run directory of a server has the id of its job as its name: an existing folder is a folder.
    if Path(run).exists():
        return False
    try:
        UUID(run)
    except ValueError:
        return False
    return True


def _as_json(comparison: Comparison) -> dict[str, object]:
    return {
        "runs": [{"name": run.name, "status": run.status, "figures": run.figures} for run in comparison.runs],
        "differences": [{"path": each.path, "values": list(each.values)} for each in comparison.differences],
    }


def compare_directories(folders: list[Path], series: str) -> Comparison:
    """Run directories of this machine; InputError when a folder is not one."""
    from gpubloom.cli.chart import Line
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.runs.comparing import compare
    from gpubloom.runs.folder import RunFolder, read_curve

    for folder in folders:
        must_be_run(folder)
    found = [RunFolder(folder).run(folder.absolute()) for folder in folders]
    curves = [read_curve(folder, run, series) for folder, run in zip(folders, found, strict=True)]
    lines = [Line([] if curve is None else [list(zip(curve.x, curve.y, strict=True))]) for curve in curves]
    metrics = sorted({name for run in found for name in run.stats})
    return replace(_comparison(compare(found).model_dump(mode="json"), lines), metrics=metrics)


def compare_jobs(job_ids: list[str], series: str) -> Comparison:
    """Runs of the server that `bloom auth login` stored."""
    from gpubloom.cli.chart import Line

    answer = call("GET", "/runs/compare?" + urlencode([("run", job_id) for job_id in job_ids]))
    lines = []
    for job_id in job_ids:
        query: dict[str, str | int] = {"series": series, "points": _POINTS}
        curves = call("GET", f"/jobs/{job_id}/metrics", query=query)["series"]
        lines.append(Line([list(zip(curve["x"], curve["value"], strict=True)) for curve in curves]))
    return _comparison(answer, lines)


def _comparison(answer: dict[str, Any], lines: "list[Line]") -> Comparison:
    """The API's comparison, which a folder gives as well, with a curve for each run."""
    from gpubloom.plan.comparison import Difference

    runs = [
        Run(given["name"], given["status"], _figures(given), line)
        for given, line in zip(answer["outcomes"], lines, strict=True)
    ]
    listed = [*answer["differences"], *answer["fact_differences"]]
    return Comparison(runs, [Difference(each["path"], tuple(each["values"])) for each in listed])


def _figures(found: dict[str, Any]) -> dict[str, float | None]:
    from gpubloom.traincard.number_encoding import decode_number

    return {
        "final train loss": decode_number(found["final"].get("train/loss")),
        "final eval loss": decode_number(found["final"].get("eval/loss")),
        "best eval loss": found["best_eval_loss"],
        "steps": found["steps"],
        "tokens": found["tokens"],
        "mean tokens/s": found["tokens_per_second"],
        "seconds": found["seconds"],
    }


def _show(comparison: Comparison, series: str) -> None:
    """Print the differences and results as tables, then one chart."""
    from rich.text import Text

    from gpubloom.cli.chart import draw_together
    from gpubloom.cli.tables import new_console

    console = new_console()
    for table in tables(comparison, console.width):
        console.print(table)
        console.print()
    lines = [run.curve for run in comparison.runs]
    if not any(piece for line in lines for piece in line.pieces):
        known = f" Metrics: {', '.join(comparison.metrics)}." if comparison.metrics else ""
        console.print(f"None of these runs has values of {series}.{known}", soft_wrap=True)
        return
    console.print(Text(series))
    for row in draw_together(lines, min(console.width, _MOST_WIDTH), _CHART_HEIGHT):
        text = Text(no_wrap=True)
        for part, owner in row:
            text.append(part, style="" if owner is None else _COLOURS[owner])
        console.print(text)


def tables(comparison: Comparison, width: int) -> "list[Table]":
    """One table with a column for each run; several where `width` is too narrow for all runs."""
    rows = _rows(comparison)
    label_width = max(len(label) for label, _ in rows)
    widths = [
        _column_width(run.name, [cells[number] for _, cells in rows])
        for number, run in enumerate(comparison.runs)
    ]
    found, begin = [], 0
    while begin < len(widths):
        end = begin + 1
        while end < len(widths) and label_width + sum(2 + each for each in widths[begin : end + 1]) <= width:
            end += 1
        found.append(_table(comparison, rows, label_width, range(begin, end), widths))
        begin = end
    return found


def _rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Labels, each with a cell for every run: differences of the configs, an empty row, results."""
    from gpubloom.cli.chart import short

    none = ["" for _ in comparison.runs]
    rows = [(each.path, [_shown(value) for value in each.values]) for each in comparison.differences]
    rows = rows or [("the configs are the same", none)]
    rows += [("", none), ("status", [run.status for run in comparison.runs])]
    for name in comparison.runs[0].figures:
        figures = [run.figures[name] for run in comparison.runs]
        if any(figure is not None for figure in figures):
            rows.append((name, ["–" if figure is None else short(figure) for figure in figures]))
    return rows


def _column_width(name: str, cells: list[str]) -> int:
    """As wide as the longest number; longer text, such as a path, wraps."""
    return max(min(len(cell), _TEXT_WIDTH) for cell in (name, *cells))


def _table(
    comparison: Comparison,
    rows: list[tuple[str, list[str]]],
    label_width: int,
    shown: range,
    widths: list[int],
) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", width=label_width, overflow="fold")
    for number in shown:
        # The colour of its curve below.
        heading = Text(comparison.runs[number].name, style=_COLOURS[number])
        table.add_column(heading, justify="right", width=widths[number], overflow="fold")
    for label, cells in rows:
        table.add_row(label, *(Text(cells[number]) for number in shown))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
