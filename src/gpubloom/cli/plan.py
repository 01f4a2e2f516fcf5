"""`bloom plan`: whether a run fits in memory, where each tensor is stored, and how fast the run would be.

The plan shows memory by kind, the phases of a step, the placement of tensors, and the bottleneck.
It never imports torch; `--measure` starts a child process.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gpubloom.cli.output import echo, refuse
from gpubloom.errors import InputError

if TYPE_CHECKING:
    from gpubloom.plan import (
        DecoderShape,
        DoesNotFit,
        Hardware,
        Memory,
        NearestFit,
        Needs,
        Phase,
        Plan,
        TrainConfig,
    )

# Max sequence length of a named shape, unless model.context_length is set: the one of the benchmarks.
_CONTEXT_LENGTH = 1_024
_MEASURING_SECONDS = 120.0


def plan(
    config: Annotated[
        Path | None, typer.Option(help="Config file (JSON). For all fields, run: bloom runs config-schema")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set any field of the config, such as batch_size=8; may be repeated.",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="Plan for another machine: 'H200, 1536 GB host' or '2x RTX 3060, 64 GB host, 8 cores'."
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Plan for a well-known model size instead of the config's model: 7b, 130b, llama3-8b …"
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the speed of this machine first, and keep it for later plans; takes a few seconds.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate the memory, speed and duration of a run.

    Starts nothing.
    """
    from gpubloom.hub.fetching import default_home
    from gpubloom.plan import DoesNotFit, estimate_tokens, nearest_fits, plan_on
    from gpubloom.plan.speedups import with_speedup

    try:
        asked, given = _asked(config, assignments or [], shape)
        hardware = _machine(machine, measure=measure)
        tokens = estimate_tokens(asked.data) if shape is None else None
        try:
            found = plan_on(hardware, asked, tokens_per_epoch=tokens, shape=given)
        except DoesNotFit as refusal:
            options = nearest_fits(asked, hardware, tokens_per_epoch=tokens, shape=given)
            title = _title(shape, asked, hardware)
            _show_refusal(refusal, options, title, by_shape=shape is not None, as_json=as_json)
            raise typer.Exit(1) from None
        if machine is None:
            found = with_speedup(found, asked, hardware, default_home())
        _show(found, _title(shape, asked, hardware), as_json=as_json)
    except ValueError as problem:
        refuse(problem)


def _asked(
    config_file: Path | None, assignments: list[str], shape: str | None
) -> "tuple[TrainConfig, DecoderShape | None]":
    from gpubloom.cli.train_config import build_config
    from gpubloom.plan import ModelConfig, named_shape

    config = build_config(
        flags={},
        assignments=assignments,
        config_file=config_file,
        environment=os.environ,
        folder=Path.cwd(),
        fill_in_data=shape is None,
    )
    if shape is None:
        return config, None
    length = config.model.context_length or _CONTEXT_LENGTH
    if config.model != ModelConfig(context_length=config.model.context_length):
        raise InputError(
            "invalid_option",
            "--shape sets the model sizes: remove all other model settings except model.context_length.",
        )
    return config.model_copy(update={"model": ModelConfig(context_length=length)}), named_shape(shape)


def _machine(described: str | None, *, measure: bool) -> "Hardware":
    from gpubloom.hub.fetching import default_home
    from gpubloom.plan import Hardware
    from gpubloom.plan.machine_file import measured_hardware, store_measured

    if described is not None:
        if measure:
            raise InputError(
                "invalid_option",
                "--measure is for this machine, --machine is for another machine: use only one of them.",
            )
        return Hardware.parse(described)
    if not measure:
        return measured_hardware(default_home())
    found = measured_now()
    try:
        store_measured(default_home(), found)
    except OSError as problem:
        echo(
            f"warning: The measured speed is not kept for later plans, because {default_home()} "
            f"cannot be written: {problem.strerror}. Set BLOOM_HOME to another folder.",
            err=True,
        )
    return found


def measured_now() -> "Hardware":
    """This machine, measured by a child process."""
    from gpubloom.cli.child_process import child_environment, must_have_torch
    from gpubloom.plan import Hardware
    from gpubloom.plan.machine_file import measuring_command

    must_have_torch()
    try:
        done = subprocess.run(
            measuring_command(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=child_environment(),
            timeout=_MEASURING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            "measuring_failed", f"The measurement did not end within {_MEASURING_SECONDS:.0f} seconds."
        ) from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no output"]
        raise InputError("measuring_failed", f"The measurement failed: {said[-1]}")
    return Hardware.model_validate_json(done.stdout)


def _title(shape: str | None, config: "TrainConfig", hardware: "Hardware") -> str:
    what = shape or config.model.path or config.model.preset
    method = "" if config.method == "full" else f", {config.method}"
    return f"{what}{method} on {hardware.name}"


def _show(found: "Plan", title: str, *, as_json: bool) -> None:
    if as_json:
        _print_json({"fits": True, "code": None, "reason": None, "plan": found.model_dump(mode="json")})
    else:
        _print_lines(plan_lines(found, title))


def _show_refusal(
    refusal: "DoesNotFit",
    options: "tuple[NearestFit, ...]",
    title: str,
    *,
    by_shape: bool,
    as_json: bool,
) -> None:
    from gpubloom.plan import needs_of

    needs = needs_of(refusal)
    if as_json:
        _print_json(
            {
                "fits": False,
                "code": refusal.code,
                "reason": str(refusal),
                "plan": None,
                "needs": needs.model_dump(mode="json"),
                "options": [option.model_dump(mode="json") for option in options],
            }
        )
        return
    _print_lines([f"Does not fit. {escape(str(refusal))}", "", f"[bold]{escape(title)}[/bold], at least"])
    _print_lines(_needed_lines(needs))
    if not options:
        return
    _print_lines(["", "Settings that fit:"])
    _print_lines(_option_lines(options, by_shape=by_shape))
    _print_lines(["", f"Plan with the first of them: {escape(options[0].title)}", ""])
    _print_lines(plan_lines(options[0].plan, f"{title.rpartition(' on ')[0]} on {options[0].machine}"))


def _needed_lines(needs: "Needs") -> Iterator[str]:
    for name, memory in (("GPU memory", needs.gpu), ("Host memory", needs.host)):
        if memory is not None:
            over = memory.total - memory.limit_bytes
            word = f"[red]{_gb(over)} GB too much[/red]" if over > 0 else "[green]fits[/green]"
            used = f"{_gb(memory.total)} of {_gb(memory.limit_bytes)} GB"
            yield f"{name:<{_NAME_WIDTH}} {used}, {word}"


def _option_lines(options: "tuple[NearestFit, ...]", *, by_shape: bool) -> Iterator[str]:
    for number, option in enumerate(options, 1):
        settings = " ".join(f"--set {path}={json.dumps(value)}" for path, value in option.changes.items())
        if by_shape:
            # The size was not a setting.
            settings = settings.replace("--set model.preset=", "--shape ")
        how = settings.replace('"', "") or f'--machine "{option.machine}"'
        yield f"{number}. {escape(option.title)}: {option.plan.tokens_per_second:,.0f} tokens/s"
        yield f"   [dim]{escape(how)}[/dim]"


def _print_json(answer: dict[str, Any]) -> None:
    echo(json.dumps(answer, indent=2))


def _print_lines(lines: Iterable[str]) -> None:
    from gpubloom.cli.tables import new_console

    console = new_console(markup=True)
    # Words wrap in a terminal; a pipe gets whole lines.
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)


# A bar with its name before it and its numbers behind it fits 80 columns.
_WIDTH = 44
_NAME_WIDTH = 12
# A character and a colour for each kind of memory, in the order in which a bar is filled.
_KINDS = {
    "weights": ("█", "blue"),
    "gradients": ("▓", "cyan"),
    "optimizer": ("▒", "magenta"),
    "activations": ("▚", "green"),
    "overhead": ("░", "white"),
}
_LANES = {"compute": "GPU", "link": "link", "host": "host"}


def plan_lines(plan: "Plan", title: str) -> Iterator[str]:
    """Lines with rich's colour marks."""
    yield f"[bold]{escape(title)}[/bold]"
    yield f"{_parameters(plan)}, {plan.tokens_per_step:,} tokens per step, {escape(plan.precision_reason)}"
    yield ""
    for name, memory in (("GPU memory", plan.gpu), ("Host memory", plan.host)):
        if memory is not None:
            yield from _memory_bar(name, memory)
    yield ""
    yield from _step_lanes(plan)
    yield ""
    yield escape(plan.placement_text)
    yield f"[bold]{plan.tokens_per_second:,.0f} tokens/s[/bold]{_whole(plan)}"
    if plan.speedup is not None:
        yield escape(speedup_text(plan))
    yield escape(f"Bottleneck: {plan.limited_by}. " + " ".join(plan.limits))
    if plan.assumptions:
        yield f"[dim]Assumes {escape('; '.join(plan.assumptions))}.[/dim]"


def parameters_text(count: int) -> str:
    """0.49 B, 11.3 M."""
    return f"{count / 1e9:,.2f} B" if count >= 1e8 else f"{count / 1e6:,.1f} M"


def speedup_text(plan: "Plan") -> str:
    """What was measured, and how long the run would take without the engine."""
    from gpubloom.traincard.lines import duration

    assert plan.speedup is not None
    text = f"{plan.speedup.sentence} ({plan.speedup.model}, {plan.speedup.method})."
    if plan.seconds is None:
        return text
    without = duration(plan.seconds * plan.speedup.ratio)
    return f"{text} Training time: {duration(plan.seconds)} with GPU Bloom, about {without} without."


def _parameters(plan: "Plan") -> str:
    size = parameters_text(plan.parameters)
    if plan.trained_parameters in (0, plan.parameters):
        return f"{size} parameters"
    return f"{size} parameters, {plan.trained_parameters / 1e6:,.1f} M of them trained"


def _memory_bar(name: str, memory: "Memory") -> Iterator[str]:
    parts = {kind: getattr(memory, kind) for kind in _KINDS}
    bar, drawn, counted = "", 0, 0
    for kind, (character, colour) in _KINDS.items():
        counted += parts[kind]
        end = round(_WIDTH * counted / memory.limit_bytes)
        bar += f"[{colour}]{character * (end - drawn)}[/{colour}]"
        drawn = max(drawn, end)
    rest = "·" * (_WIDTH - drawn)
    yield f"{name:<{_NAME_WIDTH}} {bar}[dim]{rest}[/dim] {_gb(memory.total)} of {_gb(memory.limit_bytes)} GB"
    # Three kinds in a line: all five would be wider than 80 columns.
    legend = [
        f"[{colour}]{character}[/{colour}] {kind} {_gb(parts[kind])}"
        for kind, (character, colour) in _KINDS.items()
        if parts[kind] >= 5e7
    ]
    for start in range(0, len(legend), 3):
        yield f"{'':<{_NAME_WIDTH}} {'  '.join(legend[start : start + 3])}"


def _step_lanes(plan: "Plan") -> Iterator[str]:
    """One line for each part of the machine: how long it is busy in each phase of a step."""
    yield f"One step: {_seconds(plan.step_seconds)}"
    widths = _widths(plan.phases)
    names = "".join(
        f"{_fitting(phase, width):<{width}}" for phase, width in zip(plan.phases, widths, strict=True)
    )
    yield f"{'':<{_NAME_WIDTH}} {names.rstrip()}"
    for lane, shown in _LANES.items():
        if plan.gpu is None and lane == "compute":
            shown = "CPU"
        if not any(getattr(phase, lane) for phase in plan.phases):
            continue
        cells = ""
        for phase, width in zip(plan.phases, widths, strict=True):
            busy = min(width, round(width * getattr(phase, lane) / phase.seconds)) if phase.seconds else 0
            cells += "━" * busy + " " * (width - busy)
        yield f"{shown:<{_NAME_WIDTH}} [dim]{cells.rstrip()}[/dim]"


def _widths(phases: "tuple[Phase, ...]") -> list[int]:
    total = sum(phase.seconds for phase in phases)
    ends, passed = [], 0.0
    for phase in phases:
        passed += phase.seconds
        ends.append(round(_WIDTH * passed / total))
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _fitting(phase: "Phase", width: int) -> str:
    """The name and length of a phase, as much as there is room for."""
    texts = (f"{phase.name} {_seconds(phase.seconds)}", phase.name)
    return next((text for text in texts if len(text) < width), "")


def _whole(plan: "Plan") -> str:
    from gpubloom.traincard.lines import duration

    if plan.seconds is None or plan.steps is None:
        return ""
    return f", {duration(plan.seconds)} for {plan.steps:,} steps"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def _gb(count: int) -> str:
    return f"{count / 1e9:,.1f}"
