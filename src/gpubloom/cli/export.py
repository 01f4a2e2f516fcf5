"""`bloom models export`, `bloom runs convert-checkpoint` and `… average-checkpoints`, by a child process.

`bloom models export` writes a model for other programs and compares answers before and after.
`bloom runs convert-checkpoint` converts a model or checkpoint to another format, and back.
`bloom runs average-checkpoints` writes the mean of several checkpoints.
"""

import json
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gpubloom.cli.output import FAILED, STOPPED, WRONG_INPUT, echo, fail, refuse, size_text
from gpubloom.errors import InputError, read_error_line

_SHOWN = 60


def export(
    model: Annotated[
        str,
        typer.Argument(help="Run directory, checkpoint, model folder, or ORG/NAME on Hugging Face."),
    ],
    to: Annotated[Path, typer.Option(help="New folder to write to.")],
    form: Annotated[
        Literal["merged", "adapter", "gguf"],
        typer.Option(
            help="merged: base model and adapter in one; adapter: only the adapter; gguf: for llama.cpp."
        ),
    ] = "merged",
    dtype: Annotated[
        Literal["bf16", "fp16", "fp32"], typer.Option(help="Data type of the weights.")
    ] = "bf16",
    base: Annotated[
        Path | None,
        typer.Option(
            "--base-model", "--base", help="Folder of the base model. Set it if the base model was moved."
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt", help="Compare the answer to this prompt before and after the export; may be repeated."
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(metavar="ORG/NAME", help="Also push the model to Hugging Face; requires HF_TOKEN."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Make a new Hugging Face repository public.")
    ] = False,
    device: Annotated[str, typer.Option(help="Device for the prompts: auto, cpu, cuda or cuda:1.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Export a model for other programs, and check that its answers stay the same."""
    from gpubloom.hub.fetching import default_home, local_model

    try:
        to = to.expanduser().absolute()
        if to.exists():
            raise InputError("folder_exists", f"{to} already exists: choose a new folder.")
        fields: dict[str, Any] = {
            "kind": "export",
            "model": str(local_model(model, default_home()).absolute()),
            "name": _hub_name(model),
            "base": None if base is None else str(base.expanduser().absolute()),
            "form": form,
            "dtype": dtype,
            "device": device,
            "prompts": prompt or [],
            "hub": None if push is None else {"repository": push, "private": not public},
        }
        result = _run(fields, to)
    except ValueError as problem:
        refuse(problem)
    if as_json:
        echo(json.dumps(result, indent=2))
    else:
        _show(result, to)


def _hub_name(model: str) -> str | None:
    """What people call a model of a hub: the folder that it lies in is named after a revision."""
    if Path(model).expanduser().exists():
        return None
    return model.partition("@")[0].rpartition("/")[2]


def _run(fields: dict[str, Any], to: Path) -> dict[str, Any]:
    from gpubloom import __version__
    from gpubloom.cli.child_process import Child, Stopped, must_have_torch, stopping_signals
    from gpubloom.plan.tasks import RESULT_FILE, task_files, task_from

    must_have_torch()
    task = task_from(fields)
    with _working_folder(to) as home:
        for name, text in task_files(task, __version__).items():
            (home / name).write_text(text, encoding="utf-8")
        child = Child([str(home / "task.py")], home / "logs" / "output.log")
        with stopping_signals():
            try:
                code = child.wait()
            except (KeyboardInterrupt, Stopped):
                child.stop()
                fail("stopped", "Stopped. Nothing was written.", status=STOPPED)
        written = home / "model"
        if code == 0 and (home / RESULT_FILE).is_file():
            result: dict[str, Any] = json.loads((home / RESULT_FILE).read_text(encoding="utf-8"))
            written.rename(to)
            return result
        problem = child.refusal()
        if written.is_dir():
            # The export is written and checked; only the push failed.
            written.rename(to)
            raise InputError(problem.code, f"{problem} The exported model is in {to}.")
        raise problem


@contextmanager
def _working_folder(to: Path) -> Iterator[Path]:
    """A folder beside the new one, so that a complete export only needs to be renamed."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        home = to.parent / f".export-{secrets.token_hex(4)}"
        home.mkdir(mode=0o700)
    except OSError as problem:
        raise InputError("cannot_write", f"Cannot write to {to.parent}: {problem.strerror}.") from None
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _show(result: dict[str, Any], to: Path) -> None:
    count = len(result["files"])
    echo(f"Wrote {size_text(result['bytes'])} in {count} {'file' if count == 1 else 'files'} to {to}")
    if result["of"]:
        difference = result["largest_logit_difference"]
        echo(
            f"Same answer before and after: {result['same']} of {result['of']} prompts. "
            f"Largest difference of the logits: {difference:.2g}."
        )
    for row in result["replay"]:
        if not row["same"]:
            echo(f"  {_short(row['prompt'])}")
            echo(f"    before: {_short(row['before'])}")
            echo(f"    after:  {_short(row['after'])}")
    for note in result["notes"]:
        echo(note)
    if result["hub"] is not None:
        echo(f"Pushed to {result['hub']['url']} ({result['hub']['revision'][:12]})")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def convert(
    source: Annotated[Path, typer.Argument(help="Run directory, checkpoint or model folder.")],
    target: Annotated[Path, typer.Argument(help="New folder to write to.")],
    to: Annotated[
        Literal["safetensors", "torch", "json", "sharded", "block"],
        typer.Option(
            help="safetensors: model folder for other programs. torch: model.pt. json: model.json, for small "
            "models. block: checkpoint to resume from on one device. sharded: checkpoint to resume from on "
            "several devices."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Convert a checkpoint or model to another format.

    The weights can be converted back from every format. Only block and sharded keep the optimizer state.
    """
    from gpubloom.cli.child_process import must_have_torch

    source, target = source.expanduser().absolute(), target.expanduser().absolute()
    try:
        must_have_torch()
        if not source.exists():
            raise InputError("folder_not_found", f"There is no folder {source}.")
        if target.exists():
            raise InputError("folder_exists", f"{target} already exists: choose a new folder.")
    except ValueError as problem:
        refuse(problem)
    written = _written("gpubloom.engine.converting", "--to", to, "--", str(source), str(target))
    if as_json:
        echo(json.dumps(written, indent=2))
        return
    size = f"{written['tensors']} tensors, {size_text(written['bytes'])}"
    echo(f"Wrote {target} as {written['form']}: {size}")
    if written["can_continue"] and to in {"block", "sharded"}:
        echo(
            "To resume a run from this checkpoint, move it to the checkpoints folder of the run and give it "
            "the name of the original checkpoint."
        )


def average(
    checkpoints: Annotated[list[Path], typer.Argument(help="Two or more checkpoints of one run.")],
    into: Annotated[Path, typer.Option(help="New folder to write to.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Average the weights or adapters of several checkpoints of one run.

    Writes a new model folder that you can chat with, evaluate and export. averaged.json in it names the
    checkpoints.
    """
    from gpubloom.cli.child_process import must_have_torch

    into = into.expanduser().absolute()
    try:
        must_have_torch()
        if into.exists():
            raise InputError("folder_exists", f"{into} already exists: choose a new folder.")
    except ValueError as problem:
        refuse(problem)
    sources = [str(path.expanduser().absolute()) for path in checkpoints]
    written = _written("gpubloom.engine.converting.averaging", "--into", str(into), "--", *sources)
    if as_json:
        echo(json.dumps(written, indent=2))
        return
    echo(f"Wrote {into}: the mean of {', '.join(written['sources'])} ({written['tensors']} tensors)")


def _written(module: str, *arguments: str) -> dict[str, Any]:
    """What a child process says that it wrote; ends this process with its refusal."""
    from gpubloom.cli.child_process import Stopped, child_environment, stopping_signals

    child = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
        # Signals reach this command only, whoever sends them.
        process_group=0,
    )
    with stopping_signals():
        try:
            output, errors = child.communicate()
        except (KeyboardInterrupt, Stopped):
            # The child removes its unfinished folder.
            child.send_signal(signal.SIGINT)
            output, errors = child.communicate()
            if child.returncode != 0:
                fail("stopped", "Stopped. Nothing was written.", status=STOPPED)
    if child.returncode != 0:
        words = errors.strip().splitlines()
        refusal = read_error_line(words[-1] if words else "the converter ended without output")
        fail(refusal.code, str(refusal), status=WRONG_INPUT if child.returncode == 2 else FAILED)
    found: dict[str, Any] = json.loads(output)
    return found
