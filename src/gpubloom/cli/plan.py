"""`bloom plan`: does it fit, where does each tensor live, how fast, before anything starts.

It never imports torch; `--measure` asks a child process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gpubloom.plan import DecoderShape, Hardware, Plan, TrainConfig

# Rows of a named shape, unless model.context_length says otherwise: what the bench measures with.
_CONTEXT_LENGTH = 1_024
_MEASURING_SECONDS = 120.0


def plan(
    config: Annotated[Path | None, typer.Option(help="A JSON file with a TrainConfig.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any field of the config.")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="Another machine: 'H200, 1536 GB host', '2x RTX 3060, 64 GB host, 8 cores'."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="A well-known size instead of the config's model: 7b, 130b, llama3-8b …"),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine first; takes a few seconds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say what a run would need and how fast it would be. Nothing is started."""
    from gpubloom.plan import DoesNotFit, estimate_tokens, plan_on

    try:
        asked, given = _asked(config, assignments or [], shape)
        hardware = _machine(machine, measure=measure)
        tokens = estimate_tokens(asked.data) if shape is None else None
        try:
            found = plan_on(hardware, asked, tokens_per_epoch=tokens, shape=given)
        except DoesNotFit as refusal:
            nearest = refusal.nearest
            instead = None
            if nearest is not None:
                instead = plan_on(hardware, nearest, tokens_per_epoch=tokens, shape=given)
            _show(None, str(refusal), instead, _title(shape, asked, hardware), as_json=as_json)
            raise typer.Exit(1) from None
        _show(found, None, None, _title(shape, asked, hardware), as_json=as_json)
    except ValueError as problem:
        typer.echo(f"bloom plan: {problem}", err=True)
        raise typer.Exit(2) from None


def _asked(
    config_file: Path | None, assignments: list[str], shape: str | None
) -> "tuple[TrainConfig, DecoderShape | None]":
    from gpubloom.cli.train_config import build_config
    from gpubloom.plan import ModelConfig, named_shape

    config = build_config(
        flags={},
        assignments=assignments,
        config_file=config_file,
        environment=os.environ,
        folder=Path.cwd(),
        fill_in_data=shape is None,
    )
    if shape is None:
        return config, None
    length = config.model.context_length or _CONTEXT_LENGTH
    if config.model != ModelConfig(context_length=config.model.context_length):
        raise ValueError("--shape brings its own sizes: besides it, only model.context_length can be set.")
    return config.model_copy(update={"model": ModelConfig(context_length=length)}), named_shape(shape)


def _machine(described: str | None, *, measure: bool) -> "Hardware":
    from gpubloom.plan import Hardware, detect_hardware

    if described is not None:
        if measure:
            raise ValueError("--measure is about this machine, --machine about another: choose one of them.")
        return Hardware.parse(described)
    return _measured() if measure else detect_hardware()


def _measured() -> "Hardware":
    from gpubloom.cli.child_process import child_environment, must_have_torch
    from gpubloom.plan import Hardware

    must_have_torch()
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from gpubloom.engine.calibrate import main; main()"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=child_environment(),
            timeout=_MEASURING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"Measuring did not end within {_MEASURING_SECONDS:.0f} seconds.") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ValueError(f"Measuring failed: {said[-1]}")
    return Hardware.model_validate_json(done.stdout)


def _title(shape: str | None, config: "TrainConfig", hardware: "Hardware") -> str:
    what = shape or config.model.path or config.model.preset
    method = "" if config.method == "full" else f", {config.method}"
    return f"{what}{method} on {hardware.name}"


def _show(
    found: "Plan | None", reason: str | None, nearest: "Plan | None", title: str, *, as_json: bool
) -> None:
    from rich.console import Console

    from gpubloom.cli.plan_view import plan_lines

    if as_json:
        answer: dict[str, Any] = {
            "fits": found is not None,
            "reason": reason,
            "plan": None if found is None else found.model_dump(mode="json"),
            "nearest": None if nearest is None else nearest.model_dump(mode="json"),
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    console = Console(highlight=False)
    if reason is not None:
        console.print(f"Does not fit. {reason}", soft_wrap=True, markup=False)
    shown = found or nearest
    if shown is None:
        return
    if reason is not None:
        console.print("\nWith that change:\n")
    for line in plan_lines(shown, title):
        console.print(line, soft_wrap=True)
