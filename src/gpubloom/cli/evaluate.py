"""`bloom models eval`: a fine-tuned model compared with its base model. A child process computes it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import STOPPED, echo, fail, json_text, refuse
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


def evaluate(
    model: Annotated[Path, typer.Argument(help="Run directory, checkpoint or model folder.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Text or examples to evaluate on: a path, or an https://, hf://, s3:// or gs:// address. "
            "[default: the eval split of the run]"
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="File with prompts: one per line, or a JSON list of strings.")
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base-model", "--base", help="Folder of the base model. [default: the base model of the run]"
        ),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=4096, help="Maximum number of tokens per answer.")
    ] = 128,
    max_batches: Annotated[
        int, typer.Option(min=1, help="Number of batches to evaluate, spread evenly over the data.")
    ] = 20,
    lm_eval: Annotated[
        list[str] | None,
        typer.Option("--lm-eval", metavar="TASK", help="Benchmark task of lm-eval; may be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:1.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a model against its base model: perplexity, answers to prompts, benchmarks."""
    from gpubloom.cli.child_process import Stopped, TaskFailed
    from gpubloom.cli.tables import new_console
    from gpubloom.datasets.remote_data import is_remote

    console = new_console(stderr=as_json)
    try:
        fields = {
            "kind": "evaluate",
            "model": str(_there(model)),
            "data_path": None if data is None else data if is_remote(data) else str(_there(Path(data))),
            "prompts": () if prompts is None else _prompts(prompts),
            "base": None if base is None else str(_there(base)),
            "max_new_tokens": max_new_tokens,
            "max_batches": max_batches,
            "lm_eval_tasks": tuple(lm_eval or ()),
            "device": device,
        }
        result = _run(fields, console)
    except ValueError as problem:
        refuse(problem)
    except TaskFailed as problem:
        fail("task_failed", f"The evaluation failed: {problem}")
    except (KeyboardInterrupt, Stopped):
        raise typer.Exit(STOPPED) from None
    if as_json:
        echo(json_text(result))
    else:
        _show(result, console)


def _run(fields: dict[str, Any], console: "Console") -> dict[str, Any]:
    from gpubloom.cli.child_process import running
    from gpubloom.plan.tasks import task_from

    with running(task_from(fields)) as task, console.status("Evaluating …"):
        return task.wait_for("result.json")


def _there(path: Path) -> Path:
    if not path.exists():
        raise InputError("data_not_found", f"There is no file or folder {path}.")
    return path.resolve()


def _prompts(file: Path) -> tuple[str, ...]:
    try:
        text = _there(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError("unreadable_file", f"Cannot read {file}: {problem}.") from None
    if file.suffix == ".json":
        try:
            found = json.loads(text)
        except ValueError as problem:
            raise InputError("not_json", f"{file} is not JSON: {problem}.") from None
        if not isinstance(found, list) or not all(isinstance(prompt, str) for prompt in found):
            raise InputError("not_json_list", f"{file} must contain a JSON list of strings.")
        return tuple(found)
    return tuple(line for line in text.splitlines() if line.strip())


def _show(result: dict[str, Any], console: "Console") -> None:
    from rich.table import Table

    measured = {name: found for name, found in result["perplexity"].items() if found is not None}
    if measured:
        table = Table("", "loss", "perplexity", "tokens", box=None, pad_edge=False)
        for name, found in measured.items():
            surprise = "∞" if found["perplexity"] is None else f"{found['perplexity']:,.2f}"
            table.add_row(name, f"{found['loss']:.4f}", surprise, f"{found['tokens']:,}")
        console.print(table)
    for replayed in result["prompts"]:
        console.print(f"\n> {replayed['prompt']}", soft_wrap=True)
        for name in ("base", "tuned"):
            if replayed[name] is not None:
                console.print(f"{name}: {replayed[name]}", soft_wrap=True)
    for name, tasks in (result["lm_eval"] or {}).items():
        for task, metrics in (tasks or {}).items():
            values = ", ".join(f"{metric} {value:.4g}" for metric, value in metrics.items())
            console.print(f"{name}, {task}: {values}", soft_wrap=True)
    for note in result["notes"]:
        console.print(f"Note: {note}", soft_wrap=True)
