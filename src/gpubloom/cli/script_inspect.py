"""`bloom scripts inspect`: the hardware and packages that a script requires, read without running it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubloom.cli.output import echo, refuse

if TYPE_CHECKING:
    from gpubloom.scripts import Detected, Requirements

# In the order of `bloom scripts inspect`; lists come after them.
_ROWS = {
    "purpose": "purpose",
    "gpus": "GPUs",
    "gpu_memory_gb": "GPU memory, GB",
    "duration_hours": "hours",
    "parameters": "parameters",
    "method": "method",
    "batch": "batch size",
    "accumulation": "gradient accumulation",
    "sequence": "max sequence length",
    "dtype": "data type",
    "iterations": "steps",
    "epochs": "epochs",
    "multi_node": "multi-node",
    "interactive": "interactive",
    "writes_tensorboard": "TensorBoard",
}
_LISTS = ("models", "datasets", "frameworks", "parallelism", "trackers", "packages")


def inspect_script(
    file: Annotated[Path, typer.Argument(help="Script or notebook.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Arguments of the script, after --: such as config files or --batch_size=32."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the script lines that each value comes from.")
    ] = False,
) -> None:
    """Detect the GPUs, memory, hours and packages that a script requires.

    Reads the script without running it.
    """
    from gpubloom.scripts import ScriptProblem, detect

    try:
        found = detect(file, arguments=arguments or [])
    except ScriptProblem as problem:
        refuse(problem)
    if as_json:
        echo(found.model_dump_json(indent=2))
    else:
        _show(found)


def _show(found: "Requirements") -> None:
    from rich.table import Table

    from gpubloom.cli.tables import new_console

    console = new_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "value", "confidence", "source"):
        table.add_column(heading, overflow="fold")
    for name, label in _ROWS.items():
        value: Detected[object] | None = getattr(found, name)
        if value is not None:
            table.add_row(label, _shown(value.value), value.confidence, _where(value))
    console.print(table)
    for name in _LISTS:
        if values := getattr(found, name):
            words = ", ".join(str(each.value) for each in values)
            console.print(f"{name}: {words}", soft_wrap=True)
    if found.checkpoints is not None:
        saved = found.checkpoints.value
        resumes = f"resumes with {saved.resumes_with}" if saved.resumes_with else "cannot resume"
        console.print(f"checkpoints: {saved.saves_with}; {resumes}", soft_wrap=True)
    if found.reference_gpu is not None and not found.hours_of_any_gpu:
        how = "estimated" if found.stated_duration is None else "stated"
        console.print(f"The hours are {how} for the GPU type {found.reference_gpu}.", soft_wrap=True)
    for note in found.notes:
        console.print(note, soft_wrap=True)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}"
    return str(value)


def _where(value: "Detected[object]") -> str:
    parts = []
    if value.evidence:
        line = value.evidence[0]
        # Line 0 of "command line" means the whole command line.
        where = f"{line.file or 'line'} {line.line or ''}".strip()
        parts.append(f"{where}: {line.text}")
    if value.reason:
        parts.append(value.reason)
    return " ".join(parts)
