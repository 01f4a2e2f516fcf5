"""`bloom finetune MODEL DATA`: `bloom train` on a file of examples, with defaults that suit it.

Like `bloom train` it never imports torch; the run is one like any other.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import refuse
from gpubloom.cli.train import SETTINGS, Assignments, ConfigFile, OneGpu, RunDir
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gpubloom.plan import TrainConfig

# Rows of a step, and how many steps an epoch should have before they become that many.
_ROWS = 8
_STEPS_PER_EPOCH = 16


def finetune(
    model: Annotated[str, typer.Argument(help="A model folder, a run, or a model's id on a hub.")],
    data: Annotated[str, typer.Argument(help="A .jsonl, .json, .csv, .tsv, .txt or .parquet file.")],
    method: Annotated[
        str,
        typer.Option(help="lora, qlora (a base of 4 bits) or full.", rich_help_panel=SETTINGS),
    ] = "lora",
    epochs: Annotated[
        int | None, typer.Option(help="Times through the examples. [default: 3]", rich_help_panel=SETTINGS)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Rows per step. [default: up to 8, as fits]", rich_help_panel=SETTINGS),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Peak rate. [default: 2e-4 for adapters, 2e-5 for full]", rich_help_panel=SETTINGS),
    ] = None,
    context_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a row; longer examples are cut. [default: 1024]", rich_help_panel=SETTINGS
        ),
    ] = None,
    eval_path: Annotated[
        str | None,
        typer.Option(
            help="A file to evaluate on. [default: a twentieth of the examples]", rich_help_panel=SETTINGS
        ),
    ] = None,
    gpu: OneGpu = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    run_dir: RunDir = None,
) -> None:
    """Teach a model by examples. Ctrl-C saves; `bloom train --resume RUN` continues."""
    from rich.console import Console

    from gpubloom.cli.train import start

    console = Console(highlight=False, markup=False)
    try:
        folder = folder_of(model, console)
        flags = {
            "model.path": str(folder),
            "model.context_length": context_length,
            "data.kind": "examples",
            "data.train_path": data,
            "data.eval_path": eval_path,
            "method": method,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "device": None if gpu is None else f"cuda:{gpu}",
        }
        start(
            flags,
            assignments or [],
            config,
            run_dir,
            console,
            usual_settings(flags, assignments or [], config),
        )
    except ValueError as problem:
        refuse(problem)


def folder_of(named: str, console: "Console") -> Path:
    """The folder that a person means: of a model, of what a run made, or of what a hub has."""
    folder = Path(named).expanduser()
    if not folder.is_dir():
        from gpubloom.hub.fetching import default_home, local_model

        return local_model(named, default_home(), say=console.print)
    if (folder / "train.py").is_file():
        if not (folder / "model").is_dir():
            raise InputError(
                "no_model_yet", f"{folder} is a run that has not made a model yet: let it end first."
            )
        folder = folder / "model"
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            "adapter_in_model",
            f"{folder} holds adapters, not a whole model: merge them first with bloom export, "
            "or name the model that they belong to.",
        )
    return folder


def usual_settings(flags: dict[str, Any], assignments: list[str], config_file: Path | None) -> dict[str, Any]:
    """What nobody said: rows that the data fills, as many at once as the machine holds."""
    from gpubloom.cli.train_config import build_config
    from gpubloom.plan import DoesNotFit, detect_hardware, estimate_tokens, plan
    from gpubloom.plan.config import folder_context_length
    from gpubloom.plan.families import read_decoder

    positions = read_decoder(Path(flags["model.path"])).max_positions
    defaults: dict[str, Any] = {"model.context_length": folder_context_length(positions)}

    def asked(**more: Any) -> "TrainConfig":
        return build_config(
            flags=flags,
            assignments=assignments,
            config_file=config_file,
            environment=os.environ,
            folder=Path.cwd(),
            defaults={**defaults, **more},
        )

    def fits(rows: int) -> bool:
        try:
            plan(asked(batch_size=rows), hardware)
        except DoesNotFit:
            return False
        return True

    hardware, config = detect_hardware(), asked()
    filled = (estimate_tokens(config.data) or 0) // config.context_length
    rows = at_once = min(_ROWS, max(1, filled // _STEPS_PER_EPOCH))
    # What does not fit row by row is refused in the words of the plan.
    while at_once > 1 and not fits(at_once):
        at_once //= 2
    return defaults | {"batch_size": at_once, "accumulation": rows // at_once}
