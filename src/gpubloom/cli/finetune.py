"""`bloom finetune MODEL DATA`: `bloom train` on a dataset file with examples, with defaults for fine-tuning.

Like `bloom train` it never imports torch, and writes the same kind of run directory.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.dataset_files import mapped_columns
from gpubloom.cli.output import STOPPED, refuse
from gpubloom.cli.preflight import epoch_data, show_findings, show_preflight
from gpubloom.cli.train import SETTINGS, Assignments, ConfigFile, OneGpu, RunDir
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gpubloom.plan import TrainConfig

# Rows per step, if an epoch then still has this many steps.
_ROWS = 8
_STEPS_PER_EPOCH = 16


def finetune(
    model: Annotated[str, typer.Argument(help="Model folder, run directory, or ORG/NAME on Hugging Face.")],
    data: Annotated[str, typer.Argument(help="Dataset file: .jsonl, .json, .csv, .tsv, .txt or .parquet.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="Fine-tuning method: lora, qlora (4-bit base model) or full (all weights). [default: lora]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs. [env EPOCHS] [default: 3]", rich_help_panel=SETTINGS)
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="End the run after this many optimizer steps.", rich_help_panel=SETTINGS),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Batch size in rows. [env BATCH_SIZE] [default: up to 8, as many as fit in memory]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate. [env LEARNING_RATE] [default: 2e-4 for lora and qlora, 2e-5 for full]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    context_length: Annotated[
        int | None,
        typer.Option(
            help="Max sequence length in tokens; longer examples are truncated. [default: 1024]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    rope_scaling: Annotated[
        str | None,
        typer.Option(
            help="RoPE scaling for sequences longer than the model's positions: yarn, dynamic or linear.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN",
            help="Column of a field, such as prompt=question; repeat for each field. [default: detected]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            "--mix",
            metavar="FILE[=WEIGHT]",
            help="One more dataset file to train on; can be repeated. WEIGHT says how often an epoch trains "
            "each of its examples. [default: 1]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    eval_path: Annotated[
        str | None,
        typer.Option(
            help="Dataset file for the evaluation. [env EVAL_DATA_PATH] [default: 5% of the examples]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    sample_prompts: Annotated[
        list[str] | None,
        typer.Option(
            "--sample-prompt",
            metavar="TEXT",
            help="Prompt to answer at every evaluation, up to 8; can be repeated. See: bloom runs samples.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    gpu: OneGpu = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    run_dir: RunDir = None,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight", help="Only count the rows, tokens and steps of the run, and list what to know."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with --preflight.")] = False,
) -> None:
    """Fine-tune a model on examples.

    Ctrl-C saves a checkpoint and stops. Continue with `bloom train --resume RUN`.
    """
    from gpubloom.cli.child_process import EarlyStart, Stopped, modules_for, stopping_signals
    from gpubloom.cli.tables import new_console
    from gpubloom.cli.train import start

    console = new_console()
    try:
        with stopping_signals():
            folder = folder_of(model, console)
            flags = {
                "model.path": str(folder),
                "model.context_length": context_length,
                "model.rope_scaling": rope_scaling,
                "data.kind": "examples",
                "data.train_path": data,
                "data.columns": mapped_columns(mapping) or None,
                "data.eval_path": eval_path,
                "data.mix": [_mixed(text) for text in mix or []] or None,
                "method": method,
                "epochs": epochs,
                "max_steps": max_steps,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "eval.prompts": sample_prompts or None,
                "device": None if gpu is None else f"cuda:{gpu}",
            }
            if preflight:
                usual = usual_settings(flags, assignments or [], config)
                show_preflight(_config(flags, assignments or [], config, usual), console, as_json=as_json)
                return
            if as_json:
                raise InputError("invalid_option", "--json prints a pre-flight: add --preflight.")
            with EarlyStart(*modules_for(folder)) as early:
                usual = usual_settings(flags, assignments or [], config)
                show_findings(_config(flags, assignments or [], config, usual), console)
                start(flags, assignments or [], config, run_dir, console, early, usual)
    except ValueError as problem:
        refuse(problem)
    except (KeyboardInterrupt, Stopped):
        raise typer.Exit(STOPPED) from None


def _mixed(text: str) -> dict[str, Any]:
    """FILE or FILE=WEIGHT."""
    path, equals, weight = text.rpartition("=")
    if not equals:
        return {"path": text}
    try:
        return {"path": path, "weight": float(weight)}
    except ValueError:
        # A name may have this sign too.
        return {"path": text}


def folder_of(named: str, console: "Console") -> Path:
    """The model folder of a name: a model folder, the model of a run, or a download from Hugging Face."""
    folder = Path(named).expanduser()
    if folder.is_file():
        raise InputError(
            "not_a_model_folder",
            f"{folder} is a file, not a model folder. Name the model before the dataset.",
        )
    if not folder.is_dir():
        from gpubloom.hub.fetching import default_home, local_model

        return local_model(named, default_home(), say=console.print)
    if (folder / "train.py").is_file():
        if not (folder / "model").is_dir():
            raise InputError(
                "no_model_yet", f"The run {folder} has no model yet: wait until the run is completed."
            )
        folder = folder / "model"
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            "adapter_in_model",
            f"{folder} contains an adapter, not a whole model: merge it first with bloom models export, "
            "or name its base model instead.",
        )
    return folder


def _config(
    flags: dict[str, Any], assignments: list[str], config_file: Path | None, defaults: dict[str, Any]
) -> "TrainConfig":
    from gpubloom.cli.train_config import build_config

    return build_config(
        flags=flags,
        assignments=assignments,
        config_file=config_file,
        environment=os.environ,
        folder=Path.cwd(),
        defaults=defaults,
    )


def usual_settings(flags: dict[str, Any], assignments: list[str], config_file: Path | None) -> dict[str, Any]:
    """Defaults of settings that were not given: LoRA, and the largest batch that fits, up to 8 rows."""
    from gpubloom.plan import CountedData, DoesNotFit, detect_hardware, plan
    from gpubloom.plan.families import read_decoder
    from gpubloom.plan.model_config import folder_context_length

    positions = read_decoder(Path(flags["model.path"])).max_positions
    defaults: dict[str, Any] = {"method": "lora", "model.context_length": folder_context_length(positions)}

    def asked(**more: Any) -> "TrainConfig":
        return _config(flags, assignments, config_file, {**defaults, **more})

    def fits(rows: int) -> bool:
        try:
            plan(asked(batch_size=rows), hardware)
        except DoesNotFit:
            return False
        return True

    hardware, config = detect_hardware(), asked()
    data = epoch_data(config)
    filled = data.sequences if isinstance(data, CountedData) else (data or 0) // config.context_length
    rows = at_once = min(_ROWS, max(1, filled // _STEPS_PER_EPOCH))
    # If one row does not fit, the plan refuses the run.
    while at_once > 1 and not fits(at_once):
        at_once //= 2
    return defaults | {"batch_size": at_once, "accumulation": rows // at_once}
