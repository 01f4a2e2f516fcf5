"""The checkpoints of a run or of a job: step, eval loss, size, training time, and how it was trained."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubloom.cli.output import echo, refuse, size_text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_of_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")], as_json: AsJson = False
) -> None:
    """List the checkpoints of a run: training time, trained parameters and optimizations of each."""
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard import Reading

    try:
        reading = Reading(must_be_run(run))
        reading.update()
    except ValueError as problem:
        refuse(problem)
    best = reading.best_checkpoint
    print_checkpoints(
        [{**entry, "best": entry["path"] == best} for entry in reversed(reading.checkpoints)],
        details="metadata",
        as_json=as_json,
    )


def print_checkpoints(entries: Sequence[Mapping[str, Any]], *, details: str, as_json: bool) -> None:
    """Newest first; `details` is the field in which an entry holds what its run said of it."""
    if as_json:
        echo(json.dumps(list(entries), indent=2))
        return
    if not entries:
        echo("No checkpoint has been saved yet.")
        return
    from gpubloom.cli.tables import new_console, wrap_parts

    console = new_console()
    for entry in entries:
        said = entry.get(details) or {}
        console.print("  ".join(_heading(entry)), style="bold", soft_wrap=True)
        for line in wrap_parts(_facts(said), console.width, indent="  "):
            console.print(line, soft_wrap=True)
        for line in wrap_parts(said.get("optimizations") or (), console.width, indent="  "):
            console.print(line, style="dim", soft_wrap=True)


def _heading(entry: Mapping[str, Any]) -> list[str]:
    found = [f"step {entry['step'] or 0:,}"]
    loss = (entry.get("metrics") or {}).get("eval/loss")
    if loss is not None:
        found.append(f"eval loss {loss}" if isinstance(loss, str) else f"eval loss {loss:.4g}")
    if entry.get("size") is not None:
        found.append(size_text(entry["size"]))
    if entry.get("best"):
        found.append("best")
    return found


def _facts(said: Mapping[str, Any]) -> list[str]:
    """What the run said: time, parameters, method, precision. Checkpoints of earlier versions say nothing."""
    from gpubloom.cli.plan import parameters_text
    from gpubloom.traincard.lines import duration

    found = []
    if isinstance(seconds := said.get("training_seconds"), int | float):
        found.append(f"trained for {duration(seconds)}")
    trained, parameters = said.get("trained_parameters"), said.get("parameters")
    if isinstance(trained, int) and isinstance(parameters, int):
        found.append(f"{parameters_text(trained)} of {parameters_text(parameters)} parameters trained")
    return found + [str(said[name]) for name in ("method", "precision") if said.get(name)]
