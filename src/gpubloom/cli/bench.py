"""`bloom models bench`: measures the engine beside PEFT on this machine, and keeps the result.

The measurements run in child processes. The form, the job page and `bloom plan` show the speed-up for runs
with the same method and precision and a model of about the same size. The speed of the machine itself is
measured too, as by `bloom plan --measure`: it is the limit beside both figures, and later plans use it.
"""

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubloom.cli.output import echo, refuse
from gpubloom.errors import InputError, read_error_line

if TYPE_CHECKING:
    from gpubloom.plan import Hardware
    from gpubloom.plan.speedups import Speedup

_NEEDED = ("transformers", "peft")
# What a machine finishes in a few minutes, by whether it has a GPU.
_SHAPES = {True: "qwen2.5-1.5b", False: "qwen2.5-0.5b"}
_ROWS = {True: (4, 1_024), False: (1, 128)}


def bench(
    shape: Annotated[
        str | None,
        typer.Option(
            help="Model size: tiny, 0.5b, 1.5b, 7b, llama3-8b … [default: 1.5b on a GPU, 0.5b on a CPU]",
            show_default=False,
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="Method to measure: lora or full.")] = "lora",
    batch_size: Annotated[
        int | None, typer.Option(help="Rows per step. [default: 4 on a GPU, 1 on a CPU]", min=1)
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens per row. [default: 1024 on a GPU, 128 on a CPU]", min=2)
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Rounds. In each round both sides train in turn.", min=1, max=100)
    ] = 5,
    steps: Annotated[int, typer.Option(help="Steps of each side per round.", min=1, max=1_000)] = 4,
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how much faster the engine is than PEFT on this machine.

    Trains models with random weights: the engine and PEFT with gradient checkpointing, in turns. The result
    is the median of all rounds. It is kept and shown for similar runs. Use a quiet machine.
    """
    from gpubloom.cli.plan import measured_now
    from gpubloom.hub.fetching import default_home
    from gpubloom.plan import detect_hardware
    from gpubloom.plan.machine_file import store_measured
    from gpubloom.plan.speedups import store_speedup

    try:
        on_gpu = device != "cpu" and bool(detect_hardware().gpus)
        rows, tokens = _ROWS[on_gpu]
        found = _measure(
            {
                "shape": shape or _SHAPES[on_gpu],
                "method": _known(method),
                "batch_size": batch_size or rows,
                "context_length": length or tokens,
                "rounds": rounds,
                "steps": steps,
                "device": device,
            }
        )
        kept = store_speedup(default_home(), found)
        machine = measured_now()
        store_measured(default_home(), machine)
    except (ValueError, OSError) as problem:
        refuse(problem)
    if as_json:
        echo(found.model_dump_json(indent=2))
        return
    limit = limit_seconds(found, machine, on_gpu=on_gpu)
    for line in _lines(found, limit):
        echo(line)
    echo(f"Saved in {kept}, and the speed of this machine for later plans beside it.")


def limit_seconds(found: "Speedup", machine: "Hardware", *, on_gpu: bool) -> float:
    """A step of matrix products alone, all at the speed that was measured for large ones."""
    from gpubloom.plan import costs
    from gpubloom.plan.hardware import rates_of

    rate = rates_of(machine, machine.gpus[0] if on_gpu else None, found.precision).matrix
    # Frozen weights need no gradient of their own.
    products = (6 if found.method == "full" else 4) * found.parameters
    tokens = found.batch_size * found.context_length
    return products * tokens / (rate if on_gpu else rate * costs.CPU_EFFICIENCY)


def _known(method: str) -> str:
    if method not in {"lora", "full"}:
        raise InputError("invalid_option", f"--method {method} cannot be measured: use lora or full.")
    return method


def _measure(options: dict[str, Any]) -> "Speedup":
    from gpubloom.cli.child_process import child_environment, must_have_torch
    from gpubloom.plan.speedups import Speedup

    must_have_torch()
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise InputError(
                "not_installed",
                f"The baseline requires {name}, which is not installed. Run: pip install 'gpubloom[trl]'.",
            )
    echo(f"Measuring {options['shape']}, {options['method']}. This takes a few minutes.", err=True)
    done = subprocess.run(
        [sys.executable, "-m", "gpubloom.backends.bench", json.dumps(options)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if done.returncode == 0:
        return Speedup.model_validate_json(done.stdout.strip().splitlines()[-1])
    said = done.stderr.strip().splitlines() or ["no output"]
    if done.returncode == 2:
        raise read_error_line(said[-1])
    raise InputError("measuring_failed", f"The measurement failed: {said[-1]}")


def _lines(found: "Speedup", limit: float) -> list[str]:
    tokens = found.batch_size * found.context_length
    sides = (
        ("GPU Bloom", found.step_seconds),
        (found.baseline, found.baseline_step_seconds),
        ("limit by matrix products, about", limit),
    )
    width = max(len(name) for name, _ in sides)
    return [
        f"{found.model}, {found.method}, {found.precision}, {found.batch_size} × {found.context_length} "
        f"tokens on {found.device}",
        *(
            f"  {name:<{width}}  {seconds:.3f} s per step  {tokens / seconds:,.0f} tokens/s"
            for name, seconds in sides
        ),
        f"{found.sentence}.",
        f"{found.rounds} rounds: {found.lowest:.2f} to {found.highest:.2f} ×, median {found.ratio:.2f} ×.",
    ]
