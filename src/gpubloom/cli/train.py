"""`bloom train`: writes a run directory, starts its train.py in a child process, and shows its progress.

It never imports torch; it reads the run directory, like any other viewer. The options for settings are shared
with `bloom finetune` and `bloom models find-lr`.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import FAILED, STOPPED, echo, refuse, report
from gpubloom.errors import InputError, shell_word

if TYPE_CHECKING:
    from rich.console import Console

    from gpubloom.cli.child_process import EarlyStart
    from gpubloom.cli.serve_metrics import MetricsServer
    from gpubloom.plan import Plan, TrainConfig

# Files whose rows are usually examples.
_EXAMPLES = (".jsonl", ".json", ".csv", ".tsv")

# The panel of `--help` that shows settings.
SETTINGS = "Settings"

OneGpu = Annotated[
    int | None, typer.Option(min=0, help="Use only the GPU with this number.", rich_help_panel=SETTINGS)
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set any field of the config, such as optimizer.weight_decay=0.05; may be repeated.",
        rich_help_panel=SETTINGS,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Config file (JSON). Options override it; it overrides environment variables. "
        "For all fields, run: bloom runs config-schema",
        rich_help_panel=SETTINGS,
    ),
]
RunDir = Annotated[
    Path | None, typer.Option(help="New run directory. [default: ./runs/<time>-<name of the data>]")
]


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help="Training text: file, folder, glob, address or .bin token file. [env TRAIN_DATA_PATH] "
            "[default: ./data/train if it exists, else a demo on the source code of Python]",
        ),
    ] = None,
    train_path: Annotated[
        str | None, typer.Option(help="The same as the argument DATA.", rich_help_panel=SETTINGS)
    ] = None,
    eval_path: Annotated[
        str | None,
        typer.Option(
            help="Text for the evaluation. [env EVAL_DATA_PATH] [default: 5% of the training text]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Number of epochs. [env EPOCHS] [default: 10, or 3 with pretrained weights]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="End the run after this many optimizer steps.", rich_help_panel=SETTINGS),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Batch size in rows. [env BATCH_SIZE] [default: 32, or 8 with pretrained weights]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate. [env LEARNING_RATE] "
            "[default: 1e-3 for a new model, 2e-4 for adapters, 2e-5 for pretrained weights]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    gpu: OneGpu = None,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Number of training processes. Each process uses one GPU, or a share of the CPU cores, and "
            "trains batch_size rows per step. auto: the fastest number for this machine. "
            "[default: one for each GPU]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    ray: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Train with N processes on the Ray cluster at RAY_ADDRESS.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    checkpoint_dir: Annotated[
        str | None,
        typer.Option(
            help="Parent folder for checkpoints; the run gets a subfolder with its name. "
            "[env CHECKPOINT_DIR] [default: checkpoints in the run directory]",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    assignments: Assignments = None,
    config: ConfigFile = None,
    run_dir: RunDir = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Resume a run from its newest checkpoint.")
    ] = None,
    serve_metrics: Annotated[
        bool,
        typer.Option(
            "--serve-metrics",
            help="Serve a dashboard to watch and control the run, at METRICS_SERVER_ADDR (127.0.0.1:8081).",
        ),
    ] = False,
) -> None:
    """Train a language model from text.

    Ctrl-C saves a checkpoint and stops. Continue with --resume.
    """
    flags = {
        "data.train_path": train_path if data is None else data,
        "data.eval_path": eval_path,
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "device": None if gpu is None else f"cuda:{gpu}",
        "processes": processes if ray is None else ray,
        "cluster": None if ray is None else "ray",
        "checkpoint.directory": checkpoint_dir,
    }
    from gpubloom.cli.child_process import ENGINE, EarlyStart, Stopped, stopping_signals
    from gpubloom.cli.serve_metrics import metrics_server
    from gpubloom.cli.tables import new_console

    console = new_console()
    try:
        if data is not None and train_path is not None:
            raise InputError("invalid_option", "Name the training text once: as DATA or with --train-path.")
        if ray is not None and processes is not None:
            raise InputError("invalid_option", "--ray sets the number of processes: leave out --processes.")
        if resume is not None and (
            run_dir or config or assignments or any(value is not None for value in flags.values())
        ):
            raise InputError(
                "invalid_option",
                "--resume continues a run with its own settings: leave out all other settings.",
            )
        with stopping_signals(), metrics_server(serve_metrics) as server:
            if resume is not None:
                _resume(resume, console, server)
            else:
                with EarlyStart(ENGINE) as early:
                    start(flags, assignments or [], config, run_dir, console, early, server=server)
    except ValueError as problem:
        refuse(problem)
    except (KeyboardInterrupt, Stopped):
        raise typer.Exit(STOPPED) from None


def start(
    flags: dict[str, Any],
    assignments: list[str],
    config_file: Path | None,
    wanted_dir: Path | None,
    console: "Console",
    early: "EarlyStart",
    defaults: dict[str, Any] | None = None,
    server: "MetricsServer | None" = None,
) -> None:
    """Writes a new run and trains it in a child process; InputError when the input is wrong."""
    from gpubloom import __version__
    from gpubloom.cli.child_process import Stopped, must_have_torch
    from gpubloom.cli.preflight import epoch_data, hand_over
    from gpubloom.cli.train_config import build_config
    from gpubloom.hub.fetching import default_home
    from gpubloom.plan import plan_on, run_files
    from gpubloom.plan.machine_file import measured_hardware

    config = build_config(
        flags=flags,
        assignments=assignments,
        config_file=config_file,
        environment=os.environ,
        folder=Path.cwd(),
        defaults=defaults or {},
    )
    _must_be_text(config)
    hardware = measured_hardware(default_home())
    expected = plan_on(hardware, config, tokens_per_epoch=epoch_data(config))
    must_have_torch()
    # The libraries that save models take names as UTF-8. ValueError: this is none.
    str((wanted_dir or Path()).absolute()).encode()
    try:
        run_dir = _new_folder(wanted_dir, config)
    except OSError as problem:
        raise InputError("cannot_write", _unwritable(problem)) from None
    try:
        for name, text in run_files(config, expected, __version__).items():
            (run_dir / name).write_text(text, encoding="utf-8")
        hand_over(config, run_dir)
    except OSError as problem:
        _remove_unused(run_dir)
        raise InputError("cannot_write", _unwritable(problem)) from None
    except BaseException:
        # Ctrl-C: there is no run yet.
        _remove_unused(run_dir)
        raise
    try:
        _introduce(config, expected, run_dir, console)
        if server is not None:
            server.start(run_dir, console)
    except (SystemExit, OSError) as problem:
        _remove_unused(run_dir)
        echo(f"{_lost_output(problem)}, so no run was started.", err=True)
        raise typer.Exit(STOPPED) from None
    except BaseException as problem:
        _remove_unused(run_dir)
        if isinstance(problem, KeyboardInterrupt | Stopped):
            _tell_removed(run_dir, console)
        raise
    _run(run_dir, [], console, server, is_new=True, early=early)


def _unwritable(problem: OSError) -> str:
    name = f" ({problem.filename})" if problem.filename else ""
    return f"Cannot write the run directory: {problem.strerror}{name}. Choose another folder with --run-dir."


def _resume(run_dir: Path, console: "Console", server: "MetricsServer | None") -> None:
    from gpubloom.cli.child_process import must_have_torch
    from gpubloom.cli.run_view import must_be_run
    from gpubloom.traincard import ControlFile, RunLock

    must_be_run(run_dir, "train.py")
    if (holder := RunLock.holder(run_dir)) is not None:
        raise InputError(
            "run_in_use",
            f"{run_dir} is in use: {holder} trains there. To watch it: "
            f"bloom runs watch {shell_word(run_dir)}",
        )
    must_have_torch()
    try:
        console.print(f"Resuming {run_dir}", soft_wrap=True)
        if server is not None:
            server.start(run_dir, console)
    except (SystemExit, OSError) as problem:
        echo(f"{_lost_output(problem)}, so the run was not resumed.", err=True)
        raise typer.Exit(STOPPED) from None
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")
    _run(run_dir, ["--resume"], console, server, is_new=False)


def _run(
    run_dir: Path,
    arguments: list[str],
    console: "Console",
    server: "MetricsServer | None",
    *,
    is_new: bool,
    early: "EarlyStart | None" = None,
) -> None:
    """Follows the run to its end, also over pauses that the dashboard can end, and prints the result."""
    from gpubloom.plan.run_files import DATA_FOLDER

    def leave_nothing() -> None:
        if is_new:
            _remove_unused(run_dir)

    code, interrupted = _follow_child(run_dir, arguments, console, leave_nothing, early)
    while server is not None and not interrupted and code == 0 and _was_resumed(run_dir, console):
        code, interrupted = _follow_child(run_dir, ["--resume"], console, lambda: None)
    # A download can be continued.
    if interrupted and not (run_dir / DATA_FOLDER).exists():
        leave_nothing()
    if run_dir.exists():
        _conclude(run_dir, code, console, interrupted=interrupted)
    else:
        _tell_removed(run_dir, console)
    if interrupted:
        raise typer.Exit(STOPPED)
    if code != 0:
        raise typer.Exit(FAILED)


def _was_resumed(run_dir: Path, console: "Console") -> bool:
    """If the run was paused in the dashboard: waits, and returns whether it was resumed there."""
    from gpubloom.cli.child_process import Stopped
    from gpubloom.cli.serve_metrics import wait_for_resume
    from gpubloom.traincard.reader import load_latest

    if (load_latest(run_dir) or {}).get("status") != "paused":
        return False
    console.print("Paused. Resume the run in the dashboard, or end this command with Ctrl-C.")
    try:
        wait_for_resume(run_dir)
    except (KeyboardInterrupt, Stopped):
        return False
    console.print("Resuming the run")
    return True


def _follow_child(
    run_dir: Path,
    arguments: list[str],
    console: "Console",
    on_refusal: Callable[[], None],
    early: "EarlyStart | None" = None,
) -> tuple[int, bool]:
    """Trains in a child process; returns its exit code, and whether this command was asked to stop."""
    from gpubloom.cli.child_process import Child, Stopped

    child = None
    interrupted = False
    try:
        from gpubloom.cli.run_view import follow
        from gpubloom.plan import TrainConfig
        from gpubloom.plan.backends import interpreter_for

        python = interpreter_for(TrainConfig.read(run_dir / "config.json"))
        child = Child([str(run_dir / "train.py"), *arguments], run_dir / "logs" / "output.log", python, early)
        follow(run_dir, child.is_alive, console)
    except (KeyboardInterrupt, Stopped):
        if child is None:
            return STOPPED, True
        interrupted = True
        child.stop(lambda: _tell(console, "Stopping … (press Ctrl-C again to stop without a checkpoint)"))
    except (SystemExit, OSError) as lost:
        if child is None:
            raise
        child.stop()
        on_refusal()
        sentence = f"{_lost_output(lost)}, so the run stopped."
        if run_dir.exists():
            sentence += f" Continue with: bloom train --resume {shell_word(run_dir)}"
        echo(sentence, err=True)
        raise typer.Exit(STOPPED) from None
    code = child.wait()
    if code == 2:
        problem = child.refusal()
        on_refusal()
        raise problem
    return code, interrupted


def _tell(console: "Console", sentence: str) -> None:
    # A terminal that was closed cannot show it.
    with contextlib.suppress(SystemExit, OSError):
        console.print(sentence, soft_wrap=True)


def _tell_removed(run_dir: Path, console: "Console") -> None:
    _tell(console, f"Stopped before the first step. {run_dir} was removed.")


def _lost_output(problem: SystemExit | OSError) -> str:
    if isinstance(problem, OSError):
        return f"The output cannot be written ({problem.strerror})"
    # rich ends a command whose output nobody reads any more, as in `bloom train | head -1`.
    return "The output was closed"


def _conclude(run_dir: Path, code: int, console: "Console", *, interrupted: bool = False) -> None:
    from gpubloom.plan import TrainConfig
    from gpubloom.traincard.reader import load_latest

    latest = load_latest(run_dir) or {}
    typed = shell_word(run_dir)
    match latest.get("status"):
        case "completed":
            console.print(f"Done. The model is in {run_dir / 'model'}", soft_wrap=True)
            config = TrainConfig.read(run_dir / "config.json")
            examples = config.data.kind == "examples"
            trial = f"bloom chat {typed}" if examples else f'bloom models generate {typed} "your prompt"'
            # Only its run can compute a model of a plug-in.
            if config.model.architecture is None:
                console.print(f"Try it: {trial}", soft_wrap=True)
        case "cancelled":
            console.print("Cancelled.")
        case status if interrupted and code != 0 and status != "failed":
            saved = latest.get("checkpoint")
            newest = f" The newest checkpoint is of step {saved['step']}." if saved else ""
            console.print(f"Stopped without saving a checkpoint.{newest}")
            console.print(f"Continue with: bloom train --resume {typed}", soft_wrap=True)
        case "paused" | "preempted" if latest.get("checkpoint"):
            console.print(f"Saved a checkpoint at step {latest['checkpoint']['step']}.")
            console.print(f"Continue with: bloom train --resume {typed}", soft_wrap=True)
        case "paused":
            console.print(
                f"Paused before the first step. Continue with: bloom train --resume {typed}", soft_wrap=True
            )
        case _:
            error = latest.get("error") or {}
            reason = error.get("message") or f"The training process ended with code {code}."
            report(error.get("code") or error.get("cause") or "training_failed", reason)
            from gpubloom.traincard.causes import cause_and_advice

            if advice := cause_and_advice(error):
                console.print(advice, soft_wrap=True)
            console.print(f"Log: {run_dir / 'logs' / 'output.log'}", soft_wrap=True)
            console.print(f"Continue with: bloom train --resume {typed}", soft_wrap=True)


def _remove_unused(run_dir: Path) -> None:
    """Removes a run directory without any trained step."""
    from gpubloom.traincard.reader import load_latest

    if (load_latest(run_dir) or {}).get("step") is None:
        shutil.rmtree(run_dir)


def _must_be_text(config: "TrainConfig") -> None:
    """InputError for a folder whose files are text and that nobody means to train on."""
    if config.data.kind != "text" or config.data.train_path is None:
        return
    folder = Path(config.data.train_path)
    typed = shell_word(folder)
    if (folder / "train.py").is_file() and (folder / "traincard").is_dir():
        what = f"a run directory. To continue the run: bloom train --resume {typed}"
    elif (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        what = f"a model folder. To fine-tune the model on examples: bloom finetune {typed} DATA"
    else:
        return
    raise InputError("data_without_text", f"{folder} is no training text but {what}")


def _new_folder(wanted_dir: Path | None, config: "TrainConfig") -> Path:
    if wanted_dir is not None:
        if wanted_dir.exists() and (not wanted_dir.is_dir() or any(wanted_dir.iterdir())):
            what = "not empty: continue a run with --resume, or" if wanted_dir.is_dir() else "a file:"
            raise InputError("folder_not_empty", f"{wanted_dir} is {what} choose another --run-dir.")
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
    raise InputError(
        "too_many_runs", "Too many runs were started in this second: choose a folder with --run-dir."
    )


def _introduce(config: "TrainConfig", expected: "Plan", run_dir: Path, console: "Console") -> None:
    from gpubloom.plan import demo_fields

    path = config.data.train_path
    what = "the demo: the source code of Python" if path == demo_fields()["data"]["train_path"] else path
    console.print(f"Training on {what}", soft_wrap=True)
    if config.data.kind == "text" and path is not None and path.lower().endswith(_EXAMPLES):
        console.print(
            f"warning: {Path(path).name} is read as plain text, brackets and commas included. To train "
            f"on its rows as examples, run: bloom finetune MODEL {shell_word(path)}",
            style="yellow",
            soft_wrap=True,
        )
    size = f"{expected.parameters / 1e6:,.1f} M parameters ({config.model.path or config.model.preset})"
    count = expected.steps
    steps = f"{count:,} step{'' if count == 1 else 's'}" if count else "unknown number of steps"
    console.print(
        f"{size}, {steps} of {expected.tokens_per_step:,} tokens, {expected.precision_reason}", soft_wrap=True
    )
    console.print(f"Run directory: {run_dir}", soft_wrap=True)
