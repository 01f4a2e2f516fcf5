"""`bloom compare`: runs side by side, how their configs differ and how they ended.

The runs are run directories of this machine, or jobs of the server that `bloom login` knows.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

import typer

from gpubloom.cli.output import WRONG_INPUT, fail, refuse

if TYPE_CHECKING:
    from rich.table import Table

    from gpubloom.cli.chart import Line
    from gpubloom.plan.comparison import Difference, Outcome

_MOST = 8
_POINTS = 400
_COLOURS = ("cyan", "magenta", "yellow", "green", "red", "blue", "bright_cyan", "bright_magenta")
_CHART_HEIGHT = 12
_MOST_WIDTH = 120


@dataclass(frozen=True)
class Run:
    """`figures` by their names, in the order they are shown; None where a run has none."""

    name: str
    status: str
    figures: dict[str, float | None]
    curve: "Line"


@dataclass(frozen=True)
class Comparison:
    """Runs, and the fields of their configs that are not the same in all."""

    runs: list[Run]
    differences: "list[Difference]"


def compare(
    runs: Annotated[list[str], typer.Argument(help="Run directories, or ids of jobs: two to eight.")],
    series: Annotated[str, typer.Option(help="The curve to draw.")] = "train/loss",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Compare runs: how their configs differ, how they ended, and their curves in one chart."""
    if not 2 <= len(runs) <= _MOST:
        fail("invalid_option", f"name two to {_MOST} runs.", status=WRONG_INPUT)
    if len(set(runs)) != len(runs):
        fail("same_run_twice", "a run cannot be compared with itself: name each once.", status=WRONG_INPUT)
    comparison = _read_all(runs, series)
    if as_json:
        from gpubloom.traincard.number_encoding import plain

        typer.echo(json.dumps(plain(_as_json(comparison)), indent=2))
        return
    _show(comparison, series)


def _read_all(runs: list[str], series: str) -> Comparison:
    ids = [run for run in runs if _is_job(run)]
    if len(ids) == len(runs):
        return compare_jobs(ids, series)
    if ids:
        fail(
            "invalid_option",
            f"{ids[0]} is a job of a server and the others are folders: compare one kind at a time.",
            status=WRONG_INPUT,
        )
    try:
        return compare_directories([Path(run) for run in runs], series)
    except ValueError as problem:
        refuse(problem)


def _is_job(run: str) -> bool:
    # A run directory of a server is named like its job; a folder that is here is meant as such.
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
    """Run directories of this machine; ValueError with a sentence when one is none."""
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.plan.comparison import differences
    from gpubloom.plan.config import read_json

    for folder in folders:
        must_be_run(folder, "config.json")
    configs = [read_json(folder / "config.json") for folder in folders]
    return Comparison([_read_run(folder, series) for folder in folders], differences(configs))


def _read_run(folder: Path, series: str) -> Run:
    from gpubloom.cli.run_view import mean_line
    from gpubloom.plan.comparison import BEST_SERIES, SPEED_SERIES, outcome
    from gpubloom.traincard import Reading

    reading = Reading(folder)
    reading.update()
    evaluations = reading.curves.attempts(BEST_SERIES).values()
    speeds = reading.curves.attempts(SPEED_SERIES).values()
    attempts = reading.attempts.values()
    started = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    ended = [attempt.last_t for attempt in attempts if attempt.last_t is not None]
    found = outcome(
        values=reading.state.values,
        steps=reading.state.step,
        # A bucket without a finite value has none that is lowest: its NaN would hide all others.
        best_eval_loss=min(
            (low for curve in evaluations for low in curve.low if not math.isnan(low)), default=None
        ),
        speed_total=sum(total for curve in speeds for total in curve.total),
        speed_count=sum(count for curve in speeds for count in curve.finite),
        seconds=max(ended) - min(started) if started and ended else None,
    )
    curve = mean_line(reading.curves.attempts(series).values())
    return Run(folder.resolve().name, reading.status, _figures(found), curve)


def compare_jobs(job_ids: list[str], series: str) -> Comparison:
    """Jobs of the server that `bloom login` knows."""
    from gpubloom.cli.api_client import call
    from gpubloom.cli.chart import Line
    from gpubloom.plan.comparison import Difference, Outcome

    answer = call("GET", "/compare?" + urlencode([("job", job_id) for job_id in job_ids]))
    runs = []
    for job, given in zip(answer["jobs"], answer["outcomes"], strict=True):
        query: dict[str, str | int] = {"series": series, "points": _POINTS}
        curves = call("GET", f"/jobs/{job['id']}/metrics", query=query)["series"]
        pieces = [list(zip(curve["x"], curve["value"], strict=True)) for curve in curves]
        found = Outcome(
            final=given["final"],
            best_eval_loss=given["best_eval_loss"],
            steps=given["steps"],
            tokens=given["tokens"],
            tokens_per_second=given["tokens_per_second"],
            seconds=given["seconds"],
        )
        runs.append(Run(job["name"], job["status"], _figures(found), Line(pieces)))
    differences = [Difference(each["path"], tuple(each["values"])) for each in answer["differences"]]
    return Comparison(runs, differences)


def _figures(found: "Outcome") -> dict[str, float | None]:
    from gpubloom.traincard.number_encoding import decode_number

    return {
        "final train loss": decode_number(found.final.get("train/loss")),
        "final eval loss": decode_number(found.final.get("eval/loss")),
        "best eval loss": found.best_eval_loss,
        "steps": found.steps,
        "tokens": found.tokens,
        "mean tokens/s": found.tokens_per_second,
        "seconds": found.seconds,
    }


def _show(comparison: Comparison, series: str) -> None:
    """Print two tables and a chart."""
    from rich.console import Console
    from rich.text import Text

    from gpubloom.cli.chart import draw_together, short

    console = Console(markup=False)
    table = _table(comparison)
    for difference in comparison.differences:
        table.add_row(difference.path, *(_shown(value) for value in difference.values))
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


def _table(comparison: Comparison) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for run, colour in zip(comparison.runs, _COLOURS, strict=False):
        # The colour of its curve below.
        table.add_column(Text(run.name, style=colour), justify="right", overflow="fold")
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
