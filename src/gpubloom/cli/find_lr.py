"""`bloom models find-lr`: tries increasing learning rates on a model and its data, and suggests one.

Takes the arguments of `bloom finetune MODEL DATA`, or, without a model, those of `bloom train`. The steps run
in a child process.
"""

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import STOPPED, echo, fail, refuse
from gpubloom.cli.train import SETTINGS, Assignments, ConfigFile, OneGpu
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gpubloom.plan.tasks import Task

_CHART_HEIGHT = 14
_CHART_WIDTH = 100


def find_lr(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder, run directory, or ORG/NAME on Hugging Face. "
            "[default: a new model, as in bloom train]",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(help="Dataset file with examples; required with MODEL.", show_default=False),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Fine-tuning method: lora, qlora or full. [default: lora if MODEL is given]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    train_path: Annotated[
        str | None,
        typer.Option(
            help="Text to train a new model on, without MODEL. [env TRAIN_DATA_PATH]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Batch size in rows. [env BATCH_SIZE]", rich_help_panel=SETTINGS)
    ] = None,
    gpu: OneGpu = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    lowest: Annotated[float, typer.Option(help="Lowest learning rate to try.")] = 1e-6,
    highest: Annotated[float, typer.Option(help="Highest learning rate to try.")] = 1e-1,
    steps: Annotated[int, typer.Option(help="Number of learning rates to try.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find a good learning rate.

    Trains for a few steps with an increasing learning rate, draws the loss, and suggests a learning rate.
    """
    from gpubloom.cli.child_process import Stopped, TaskFailed
    from gpubloom.cli.tables import new_console

    console = new_console(stderr=as_json)
    flags = {
        "data.train_path": train_path,
        "method": method,
        "batch_size": batch_size,
        "device": None if gpu is None else f"cuda:{gpu}",
    }
    finder = {"lowest": lowest, "highest": highest, "steps": steps}
    try:
        if model is not None:
            flags |= _tuning(model, data, train_path, method, console)
        task = _task(flags, assignments or [], config, finder)
        result = _run(task, steps, console)
    except ValueError as problem:
        refuse(problem)
    except TaskFailed as problem:
        fail("task_failed", f"The learning rate search failed: {problem}")
    except (KeyboardInterrupt, Stopped):
        raise typer.Exit(STOPPED) from None
    if as_json:
        echo(json.dumps(result, indent=2))
    else:
        _show(result, console)


def _tuning(
    model: str, data: str | None, train_path: str | None, method: str | None, console: "Console"
) -> dict[str, Any]:
    """The settings of `bloom finetune` with the same arguments."""
    from gpubloom.cli.finetune import folder_of

    if data is None or train_path is not None:
        raise InputError(
            "no_data", "MODEL requires a dataset file and no --train-path: bloom models find-lr MODEL DATA."
        )
    return {
        "model.path": str(folder_of(model, console)),
        "data.kind": "examples",
        "data.train_path": data,
        "method": method,
    }


def _task(
    flags: dict[str, Any], assignments: list[str], config_file: Path | None, finder: dict[str, Any]
) -> "Task":
    from gpubloom.cli.finetune import usual_settings
    from gpubloom.cli.train_config import build_config
    from gpubloom.plan.tasks import task_from

    config = build_config(
        flags=flags,
        assignments=assignments,
        config_file=config_file,
        environment=os.environ,
        folder=Path.cwd(),
        defaults=usual_settings(flags, assignments, config_file) if "model.path" in flags else {},
    )
    return task_from({"kind": "find_learning_rate", "train": config.model_dump(exclude_unset=True), **finder})


def _run(task: "Task", steps: int, console: "Console") -> dict[str, Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gpubloom.cli.child_process import running
    from gpubloom.traincard.reader import load_latest

    columns = (TextColumn("Trying learning rates"), BarColumn(), MofNCompleteColumn())
    with running(task) as child, Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("rates", total=steps)

        def show_step() -> None:
            progress.update(bar, completed=(load_latest(child.home) or {}).get("step") or 0)

        return child.wait_for("result.json", meanwhile=show_step)


def _show(result: dict[str, Any], console: "Console") -> None:
    from gpubloom.cli.chart import Line, draw

    points = [(math.log10(each["learning_rate"]), each["smoothed"]) for each in result["points"]]
    if points:
        width = min(console.width, _CHART_WIDTH)
        *rows, steps = draw(Line([points]), width, _CHART_HEIGHT)
        # The chart prints the ends of its x axis below itself; here these are exponents.
        margin = len(steps) - len(steps.lstrip())
        first, last = (f"{10**exponent:.0e}" for exponent, _ in (points[0], points[-1]))
        console.print("loss against learning rate")
        for row in (*rows, f"{'':{margin}}{first}{last:>{max(1, width - margin - len(first))}}"):
            console.print(row)
    console.print(result["reason"], soft_wrap=True)
    if (suggested := result["suggested"]) is not None:
        console.print(f"Suggested: --set learning_rate={suggested:g}")
