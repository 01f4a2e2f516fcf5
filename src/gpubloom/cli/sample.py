"""`bloom sample`: streams text from a run. The model runs in a child process; this file knows no torch."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer


def sample(
    run: Annotated[Path, typer.Argument(help="A run directory, a checkpoint or a model folder.")],
    prompt: Annotated[str, typer.Argument(help="The text to continue.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="How much to write.")] = 400,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Choose among so many tokens; 0 among all.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another text.")] = 0,
    base_model: Annotated[
        Path | None,
        typer.Option(help="The folder of the model it was tuned from; an adapter alone needs it."),
    ] = None,
) -> None:
    """Let a trained model, or one still in training, continue a text."""
    from gpubloom.cli.child_process import child_environment, must_have_torch

    try:
        must_have_torch()
        if not run.is_dir():
            raise ValueError(f"There is no run directory {run}.")
    except ValueError as problem:
        typer.echo(f"bloom sample: {problem}", err=True)
        raise typer.Exit(2) from None
    options = {"--max-tokens": max_tokens, "--temperature": temperature, "--top-k": top_k, "--seed": seed}
    command = [sys.executable, "-m", "gpubloom.engine.sample"]
    command += [] if base_model is None else ["--base-model", str(base_model.expanduser())]
    command += [text for name, value in options.items() for text in (name, str(value))]
    # After "--" a prompt may begin with a dash.
    child = subprocess.Popen(
        [*command, "--", str(run), prompt], stdin=subprocess.DEVNULL, env=child_environment()
    )
    try:
        code = child.wait()
    except KeyboardInterrupt:
        # The terminal sent it to the child as well; enough text.
        child.wait()
        code = 130
    raise typer.Exit(code)
