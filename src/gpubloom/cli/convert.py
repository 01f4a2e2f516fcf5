"""`bloom convert`: a model or checkpoint in another form. A child process does the work."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def convert(
    source: Annotated[Path, typer.Argument(help="A run directory, a checkpoint or a model folder.")],
    target: Annotated[Path, typer.Argument(help="The new folder.")],
    to: Annotated[
        Literal["safetensors", "torch", "json", "sharded", "block"],
        typer.Option(
            help="safetensors: a model folder for others; torch, json: model.pt, or model.json for small "
            "models; block, sharded: a checkpoint to continue from on one device, or divided among several."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a model or checkpoint in another form; every form can be converted back."""
    from gpubloom.cli.child_process import child_environment, must_have_torch

    source, target = source.expanduser().absolute(), target.expanduser().absolute()
    try:
        must_have_torch()
        if not source.exists():
            raise ValueError(f"There is no folder {source}.")
        if target.exists():
            raise ValueError(f"{target} exists already: choose a new folder.")
    except ValueError as problem:
        typer.echo(f"bloom convert: {problem}", err=True)
        raise typer.Exit(2) from None
    command = [sys.executable, "-m", "gpubloom.engine.converting", "--to", to, "--", str(source), str(target)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    try:
        output, errors = child.communicate()
    except KeyboardInterrupt:
        # The terminal sent it to the child as well, which takes its unfinished folder back.
        child.communicate()
        typer.echo("Stopped; nothing was written.", err=True)
        raise typer.Exit(130) from None
    if child.returncode != 0:
        words = errors.strip().splitlines()
        typer.echo(f"bloom convert: {words[-1] if words else 'the converter ended without a word'}", err=True)
        raise typer.Exit(2 if child.returncode == 2 else 1)
    written = json.loads(output)
    if as_json:
        typer.echo(json.dumps(written, indent=2))
        return
    size = f"{written['tensors']} tensors, {written['bytes'] / 1e6:,.1f} MB"
    typer.echo(f"Wrote {target} as {written['form']}: {size}")
    if written["can_continue"] and to in {"block", "sharded"}:
        typer.echo("A run continues from it where it stood: put it among its checkpoints under its old name.")
