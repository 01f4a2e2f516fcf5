"""A plan as text: memory by kind, the lanes of a step, where things live, what limits it."""

from collections.abc import Iterator

from rich.markup import escape

from gpubloom.cli.run_view import duration
from gpubloom.plan import Memory, Phase, Plan

_WIDTH = 56
# A letter and a colour for each kind of memory, in the order in which a bar is filled.
_KINDS = {
    "weights": ("█", "blue"),
    "gradients": ("▓", "cyan"),
    "optimizer": ("▒", "magenta"),
    "activations": ("█", "green"),
    "overhead": ("░", "white"),
}
_LANES = {"compute": "GPU", "link": "link", "host": "host"}


def plan_lines(plan: Plan, title: str) -> Iterator[str]:
    """Lines with rich's colour marks."""
    yield f"[bold]{escape(title)}[/bold]"
    yield f"{_parameters(plan)}, {plan.tokens_per_step:,} tokens a step, {escape(plan.precision_reason)}"
    yield ""
    for name, memory in (("GPU memory", plan.gpu), ("Host memory", plan.host)):
        if memory is not None:
            yield from _memory(name, memory)
    yield ""
    yield from _step(plan)
    yield ""
    yield escape(plan.placement_text)
    yield f"[bold]{plan.tokens_per_second:,.0f} tokens/s[/bold]{_whole(plan)}"
    yield escape(f"What limits it: {plan.limited_by}. " + " ".join(plan.limits))
    if plan.assumptions:
        yield f"[dim]Assumes {escape('; '.join(plan.assumptions))}.[/dim]"


def _parameters(plan: Plan) -> str:
    size = f"{plan.parameters / 1e9:,.2f} B" if plan.parameters >= 1e8 else f"{plan.parameters / 1e6:,.1f} M"
    if plan.trained_parameters in (0, plan.parameters):
        return f"{size} parameters"
    return f"{size} parameters, {plan.trained_parameters / 1e6:,.1f} M of them trained"


def _memory(name: str, memory: Memory) -> Iterator[str]:
    parts = {kind: getattr(memory, kind) for kind in _KINDS}
    bar, drawn, counted = "", 0, 0
    for kind, (character, colour) in _KINDS.items():
        counted += parts[kind]
        end = round(_WIDTH * counted / memory.limit_bytes)
        bar += f"[{colour}]{character * (end - drawn)}[/{colour}]"
        drawn = max(drawn, end)
    rest = "·" * (_WIDTH - drawn)
    yield f"{name:<12} {bar}[dim]{rest}[/dim] {_gb(memory.total)} of {_gb(memory.limit_bytes)} GB"
    legend = "  ".join(
        f"[{colour}]{character}[/{colour}] {kind} {_gb(parts[kind])}"
        for kind, (character, colour) in _KINDS.items()
        if parts[kind] >= 5e7
    )
    yield f"{'':<12} {legend}"


def _step(plan: Plan) -> Iterator[str]:
    """One lane under the other: how long each part of the machine is busy in each phase."""
    yield f"One step: {_seconds(plan.step_seconds)}"
    widths = _widths(plan.phases)
    names = "".join(
        f"{_fitting(phase, width):<{width}}" for phase, width in zip(plan.phases, widths, strict=True)
    )
    yield f"{'':<12} {names.rstrip()}"
    for lane, shown in _LANES.items():
        if plan.gpu is None and lane == "compute":
            shown = "CPU"
        if not any(getattr(phase, lane) for phase in plan.phases):
            continue
        cells = ""
        for phase, width in zip(plan.phases, widths, strict=True):
            busy = min(width, round(width * getattr(phase, lane) / phase.seconds)) if phase.seconds else 0
            cells += "━" * busy + " " * (width - busy)
        yield f"{shown:<12} [dim]{cells.rstrip()}[/dim]"


def _widths(phases: tuple[Phase, ...]) -> list[int]:
    total = sum(phase.seconds for phase in phases)
    ends, passed = [], 0.0
    for phase in phases:
        passed += phase.seconds
        ends.append(round(_WIDTH * passed / total))
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _fitting(phase: Phase, width: int) -> str:
    """The name and length of a phase, as much as there is room for."""
    texts = (f"{phase.name} {_seconds(phase.seconds)}", phase.name, phase.name[0])
    return next((text for text in texts if len(text) < width), "")


def _whole(plan: Plan) -> str:
    if plan.seconds is None or plan.steps is None:
        return ""
    return f", {duration(plan.seconds)} for {plan.steps:,} steps"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def _gb(count: int) -> str:
    return f"{count / 1e9:,.1f}"
