"""`bloom train`: writes a run directory, starts its train.py in a child process, and shows how it goes.

It never imports torch; what it shows it reads from the run directory, like any other viewer. The options for
settings are shared with `bloom finetune` and `bloom find-lr`.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import FAILED, STOPPED, refuse, report
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gpubloom.cli.serve_metrics import MetricsServer
    from gpubloom.plan import Plan, TrainConfig

# The panel of `--help` that shows settings.
SETTINGS = "Settings"

OneGpu = Annotated[int | None, typer.Option(min=0, help="Use this GPU only.", rich_help_panel=SETTINGS)]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Any field of the config.", rich_help_panel=SETTINGS),
]
ConfigFile = Annotated[
    Path | None, typer.Option(help="A JSON file with a TrainConfig.", rich_help_panel=SETTINGS)
]
RunDir = Annotated[Path | None, typer.Option(help="Where the run is kept. [default: ./runs/<time>-<name>]")]


def train(
    train_path: Annotated[
        str | None,
        typer.Option(
            help="File, folder, glob or .bin token file. [env TRAIN_DATA_PATH] "
            "[default: ./data/train if it exists, else a demo on Python's own sources]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    eval_path: Annotated[
        str | None,
        typer.Option(
            help="Text to evaluate on. [env EVAL_DATA_PATH] [default: a twentieth of the training text]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Times through the text. [env EPOCHS] [default: 10, or 3 with learned weights]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Rows per step. [env BATCH_SIZE] [default: 32, or 8 with learned weights]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak rate. [env LEARNING_RATE] "
            "[default: 1e-3 for a new model, 2e-4 for adapters, 2e-5 for learned weights]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    gpu: OneGpu = None,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="So many train together, each with batch_size rows: a GPU each, or a share of the cores. "
            "auto: as many as are fastest here. [default: one for each GPU]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    ray: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="N processes on the nodes of the Ray cluster at RAY_ADDRESS.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    checkpoint_dir: Annotated[
        str | None,
        typer.Option(
            help="Checkpoints go to a folder named after the run in here. [env CHECKPOINT_DIR] "
            "[default: ./checkpoints in the run directory]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    run_dir: RunDir = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Continue a run from its newest checkpoint.")
    ] = None,
    serve_metrics: Annotated[
        bool,
        typer.Option(
            "--serve-metrics",
            help="Show and steer the run in a browser, at METRICS_SERVER_ADDR (127.0.0.1:8081).",
        ),
    ] = False,
) -> None:
    """Train a language model, and see every step. Ctrl-C saves; --resume continues."""
    flags = {
        "data.train_path": train_path,
        "data.eval_path": eval_path,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "device": None if gpu is None else f"cuda:{gpu}",
        "processes": processes if ray is None else ray,
        "cluster": None if ray is None else "ray",
        "checkpoint.directory": checkpoint_dir,
    }
    from rich.console import Console

    from gpubloom.cli.serve_metrics import metrics_server

    console = Console(highlight=False, markup=False)
    try:
        if ray is not None and processes is not None:
            raise InputError(
                "invalid_option", "--ray says how many processes there are: leave out --processes."
            )
        if resume is not None and (
            run_dir or config or assignments or any(value is not None for value in flags.values())
        ):
            raise InputError(
                "invalid_option", "--resume continues a run as it was asked for: it takes no other setting."
            )
        with metrics_server(serve_metrics) as server:
            if resume is not None:
                _resume(resume, console, server)
            else:
                start(flags, assignments or [], config, run_dir, console, server=server)
    except ValueError as problem:
        refuse(problem)


def start(
    flags: dict[str, Any],
    assignments: list[str],
    config_file: Path | None,
    wanted_dir: Path | None,
    console: "Console",
    defaults: dict[str, Any] | None = None,
    server: "MetricsServer | None" = None,
) -> None:
    """Writes a new run and trains it in a child process; ValueError when that is refused."""
    from gpubloom import __version__
    from gpubloom.cli.child_process import must_have_torch
    from gpubloom.cli.train_config import build_config
    from gpubloom.plan import detect_hardware, estimate_tokens, plan_on, run_files

    config = build_config(
        flags=flags,
        assignments=assignments,
        config_file=config_file,
        environment=os.environ,
        folder=Path.cwd(),
        defaults=defaults or {},
    )
    expected = plan_on(detect_hardware(), config, tokens_per_epoch=estimate_tokens(config.data))
    must_have_torch()
    try:
        run_dir = _new_folder(wanted_dir, config)
    except OSError as problem:
        raise InputError("cannot_write", _unwritable(problem)) from None
    try:
        for name, text in run_files(config, expected, __version__).items():
            (run_dir / name).write_text(text, encoding="utf-8")
    except OSError as problem:
        _remove_unused(run_dir)
        raise InputError("cannot_write", _unwritable(problem)) from None
    _introduce(config, expected, run_dir, console)
    _run(run_dir, [], console, server, on_refusal=lambda: _remove_unused(run_dir))


def _unwritable(problem: OSError) -> str:
    name = f" ({problem.filename})" if problem.filename else ""
    return f"The run directory cannot be written: {problem.strerror}{name}. --run-dir names another folder."


def _resume(run_dir: Path, console: "Console", server: "MetricsServer | None") -> None:
    from gpubloom.cli.child_process import must_have_torch
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard import ControlFile, RunLock

    must_be_run(run_dir, "train.py")
    if (holder := RunLock.holder(run_dir)) is not None:
        raise InputError(
            "run_in_use", f"{run_dir} is in use: {holder} trains there; see it with: bloom watch {run_dir}"
        )
    must_have_torch()
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")
    console.print(f"Resuming {run_dir}")
    _run(run_dir, ["--resume"], console, server, on_refusal=lambda: None)


def _run(
    run_dir: Path,
    arguments: list[str],
    console: "Console",
    server: "MetricsServer | None",
    *,
    on_refusal: Callable[[], None],
) -> None:
    """Follows the run to its end, over pauses too where somebody can end them, and says how it ended."""
    if server is not None:
        server.start(run_dir, console)
    code, interrupted = _follow_child(run_dir, arguments, console, on_refusal)
    while server is not None and not interrupted and code == 0 and _goes_on(run_dir, console):
        code, interrupted = _follow_child(run_dir, ["--resume"], console, lambda: None)
    _conclude(run_dir, code, console)
    if interrupted:
        raise typer.Exit(STOPPED)
    if code != 0:
        raise typer.Exit(FAILED)


def _goes_on(run_dir: Path, console: "Console") -> bool:
    """Of a run that was paused at the dashboard: waits, and says whether it was resumed there."""
    from gpubloom.cli.child_process import Stopped, stopping_signals
    from gpubloom.cli.serve_metrics import wait_for_resume
    from gpubloom.traincard.reader import load_latest

    if (load_latest(run_dir) or {}).get("status") != "paused":
        return False
    console.print("Paused. Resume it at the dashboard, or end this command with Ctrl-C.")
    with stopping_signals():
        try:
            wait_for_resume(run_dir)
        except (KeyboardInterrupt, Stopped):
            return False
    console.print("Resuming")
    return True


def _follow_child(
    run_dir: Path, arguments: list[str], console: "Console", on_refusal: Callable[[], None]
) -> tuple[int, bool]:
    """Trains in a child process to its end; its exit code, and whether this command was asked to stop."""
    from gpubloom.cli.child_process import Child, Stopped, stopping_signals
    from gpubloom.cli.run_view import follow
    from gpubloom.plan import TrainConfig
    from gpubloom.plan.backends import interpreter_for

    python = interpreter_for(TrainConfig.read(run_dir / "config.json"))
    child = Child([str(run_dir / "train.py"), *arguments], run_dir / "logs" / "output.log", python)
    interrupted = False
    with stopping_signals():
        try:
            follow(run_dir, child.is_alive, console)
        except (KeyboardInterrupt, Stopped):
            interrupted = True
            console.print("Saving a checkpoint … (Ctrl-C again gives it up)")
            child.stop()
    code = child.wait()
    if code == 2:
        problem = child.refusal()
        on_refusal()
        raise problem
    return code, interrupted


def _conclude(run_dir: Path, code: int, console: "Console") -> None:
    from gpubloom.plan import TrainConfig
    from gpubloom.traincard.reader import load_latest

    latest = load_latest(run_dir) or {}
    match latest.get("status"):
        case "completed":
            console.print(f"Done. The model is in {run_dir / 'model'}", soft_wrap=True)
            examples = TrainConfig.read(run_dir / "config.json").data.kind == "examples"
            trial = f"bloom chat {run_dir}" if examples else f'bloom sample {run_dir} "your prompt"'
            console.print(f"Try it: {trial}", soft_wrap=True)
        case "cancelled":
            console.print("Cancelled.")
        case "paused" | "preempted" if latest.get("checkpoint"):
            console.print(f"Saved at step {latest['checkpoint']['step']}.")
            console.print(f"Continue with: bloom train --resume {run_dir}", soft_wrap=True)
        case None if code == -signal.SIGINT:
            # Before it could listen to Ctrl-C, there was nothing to save either.
            console.print(f"Stopped before the first step: bloom train --resume {run_dir}", soft_wrap=True)
        case "paused":
            console.print(f"Paused before the first step: bloom train --resume {run_dir}", soft_wrap=True)
        case _:
            error = latest.get("error") or {}
            reason = error.get("message") or f"the training process ended with code {code}"
            report(error.get("code") or error.get("cause") or "training_failed", reason)
            if advice := error.get("advice"):
                console.print(advice, soft_wrap=True)
            console.print(f"Log: {run_dir / 'logs' / 'output.log'}", soft_wrap=True)
            console.print(f"Continue with: bloom train --resume {run_dir}", soft_wrap=True)


def _remove_unused(run_dir: Path) -> None:
    """Takes a run directory back in which not one step was trained."""
    from gpubloom.traincard.reader import load_latest

    if (load_latest(run_dir) or {}).get("step") is None:
        shutil.rmtree(run_dir)


def _new_folder(wanted_dir: Path | None, config: "TrainConfig") -> Path:
    if wanted_dir is not None:
        if wanted_dir.exists() and (not wanted_dir.is_dir() or any(wanted_dir.iterdir())):
            raise InputError(
                "folder_not_empty",
                f"{wanted_dir} is not empty; continue a run with --resume, or choose another --run-dir.",
            )
        wanted_dir.mkdir(parents=True, exist_ok=True)
        return wanted_dir
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = Path("runs") / f"{stamp}-{config.name}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise InputError("too_many_runs", "A hundred runs were started in this second; name one with --run-dir.")


def _introduce(config: "TrainConfig", expected: "Plan", run_dir: Path, console: "Console") -> None:
    what = "the demo: Python's own sources" if config.name == "demo" else config.data.train_path
    console.print(f"Training on {what}", soft_wrap=True)
    size = f"{expected.parameters / 1e6:,.1f} M parameters ({config.model.path or config.model.preset})"
    steps = f"{expected.steps:,} steps" if expected.steps else "steps not known yet"
    console.print(f"{size}, {steps} of {expected.tokens_per_step:,} tokens, {expected.precision_reason}")
    console.print(f"Run directory: {run_dir}", soft_wrap=True)
