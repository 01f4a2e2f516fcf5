"""`bloom compare`: runs side by side, what was asked of them differently and what came of it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from uuid import UUID

import typer

if TYPE_CHECKING:
    from gpubloom.cli.compared import Comparison

_MOST = 8


def compare(
    runs: Annotated[list[str], typer.Argument(help="Run directories, or ids of jobs: two to eight.")],
    series: Annotated[str, typer.Option(help="The curve to draw.")] = "train/loss",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Compare runs: how their configs differ, how they ended, and their curves in one chart."""
    if not 2 <= len(runs) <= _MOST:
        _refuse(f"name two to {_MOST} runs.")
    if len(set(runs)) != len(runs):
        _refuse("a run cannot be compared with itself: name each once.")
    comparison = _read(runs, series)
    if as_json:
        typer.echo(json.dumps(_as_json(comparison), indent=2))
        return
    from gpubloom.cli.compared_view import show

    show(comparison, series)


def _read(runs: list[str], series: str) -> "Comparison":
    from gpubloom.cli.compared import compare_directories, compare_jobs

    ids = [run for run in runs if _is_job(run)]
    if len(ids) == len(runs):
        return compare_jobs(ids, series)
    if ids:
        _refuse(f"{ids[0]} is a job of a server and the others are folders: compare one kind at a time.")
    try:
        return compare_directories([Path(run) for run in runs], series)
    except ValueError as problem:
        _refuse(str(problem))


def _is_job(run: str) -> bool:
    # A run directory of a server is named like its job; a folder that is here is meant as such.
    if Path(run).exists():
        return False
    try:
        UUID(run)
    except ValueError:
        return False
    return True


def _as_json(comparison: "Comparison") -> dict[str, object]:
    return {
        "runs": [{"name": run.name, "status": run.status, "figures": run.figures} for run in comparison.runs],
        "differences": [{"path": each.path, "values": list(each.values)} for each in comparison.differences],
    }


def _refuse(sentence: str) -> NoReturn:
    typer.echo(f"bloom compare: {sentence}", err=True)
    raise typer.Exit(2)
