"""A run as the terminal shows it: its state, its curves, whether its process is alive, and its live output.

`RunView` reads; `follow` prints the output of a run while its process lives, in a terminal with a progress
bar below the lines.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpubloom.cli.chart import Line, short
from gpubloom.errors import InputError
from gpubloom.traincard import Curve, Curves, Reader, Reading, RunLock, RunState, diagnose
from gpubloom.traincard.improvement import improvement_of
from gpubloom.traincard.lines import RENDERED_KINDS, RunLines, duration, finding_line, rows_used
from gpubloom.traincard.number_encoding import decode_number

_GB = 1e9
_FOLLOW_SECONDS = 0.25
_SHORTEST_BAR = 8
# Steps that are trained have lines of their own, at most ten seconds apart unless a step takes longer.
_QUIET_SECONDS, _QUIET_TRAINING_SECONDS = 10.0, 60.0
# Findings that were printed are remembered by their lines, up to so many.
_FINDINGS = ("error: ", "warning: ", "note: ")
_MOST_SAID = 1_000


def must_be_run(run: Path, holds: str = "traincard") -> Path:
    """The folder itself; InputError when it does not exist or is not a run directory."""
    name_it = "Name the run directory that `bloom train` printed."
    if not run.is_dir():
        what = f"{run} is a file." if run.exists() else f"There is no folder {run}."
        raise InputError("run_not_found", f"{what} {name_it}")
    if not (run / holds).exists():
        from gpubloom.runs.folder import is_incomplete, why_incomplete

        if is_incomplete(run):
            raise InputError("run_incomplete", f"{run} is an {why_incomplete(run)}")
        what = "traincard folder" if holds == "traincard" else holds
        inside = max(run.glob(f"*/{holds}"), key=lambda found: found.stat().st_mtime, default=None)
        hint = name_it if inside is None else f"Name one of the runs in it, such as {inside.parent}."
        raise InputError("run_not_found", f"{run} is not a run directory: it has no {what}. {hint}")
    if not os.access(run / holds, os.R_OK):
        # Read as if it were empty, it would be shown as a run that has not begun.
        raise InputError(
            "permission_denied", f"{run / holds} may not be read: change its permissions, or ask its owner."
        )
    return run


class RunView:
    """Follows one run directory; `look` reads new events. Memory is bounded for a run of any length."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._reading = Reading(run_dir)
        self._alive = False
        self._attempt_to_come = 0
        self._events: Reader | None = None
        self._lines = RunLines()
        self._said: set[str] = set()

    @property
    def state(self) -> RunState:
        return self._reading.state

    @property
    def curves(self) -> Curves:
        return self._reading.curves

    @property
    def findings(self) -> list[str]:
        """The problems of the run in its current state."""
        return [finding_line(finding.severity, finding.text) for finding in diagnose(self._reading)]

    @property
    def new_findings(self) -> list[str]:
        """The findings that were no lines of the output yet."""
        return [line for line in self.findings if line not in self._said]

    @property
    def improvement(self) -> str | None:
        """Whether the run improved, in one line; None: it was not evaluated."""
        found = improvement_of(self._reading, [finding.kind for finding in diagnose(self._reading)])
        return None if found is None else found.line

    @property
    def rows_used(self) -> str | None:
        """Such as "20 of 120 rows used"; None when all rows are used, or the number is not known."""
        return rows_used(self.state.facts, only_if_fewer=True)

    def new_lines(self) -> list[str]:
        """The lines of the run's output since the last call; the first call starts at the current event."""
        if self._events is None:
            # Rank 0 reports for the run.
            cursor = self._reading.cursor
            self._events = Reader(self.run_dir, ranks=[0], cursor=cursor, kinds=RENDERED_KINDS)
        found: list[str] = []
        while events := self._events.read_new():
            for event in events:
                found += self._lines.render(event.kind, event.t, event.step, event.fields)
        self._said.update(
            line for line in found if line.startswith(_FINDINGS) and len(self._said) < _MOST_SAID
        )
        return found

    def look(self) -> bool:
        """Reads new events; returns whether there were any."""
        # Checked first: a run that ends between the two checks is read once more, not shown as killed.
        self._alive = RunLock.holder(self.run_dir) is not None
        return self._reading.update()

    def expect_new_attempt(self) -> None:
        """Call it when a process was just started: unless a process trains, the events are from before."""
        self.look()
        self._attempt_to_come = self.state.attempt + (not self._alive)

    @property
    def has_begun(self) -> bool:
        return self.state.attempt >= max(1, self._attempt_to_come)

    @property
    def is_alive(self) -> bool:
        """Whether a process on this machine trains in the directory."""
        return self._alive

    @property
    def status(self) -> str:
        """The status for people: a run of this machine that is "running" without a process was killed."""
        if not self.has_begun:
            return "starting" if self._attempt_to_come else "waiting for the first event"
        return self._reading.status

    def last(self, series: str) -> float | None:
        found = self.state.values.get(series)
        value = decode_number(found["value"]) if found else None
        return value if isinstance(value, (int, float)) else None


def mean_line(curves: Iterable[Curve]) -> Line:
    """The curves of a series, one for each attempt, by the means of their buckets."""
    return Line([[((b.first_step + b.last_step) / 2, b.mean) for b in curve.buckets] for curve in curves])


def status_line(view: RunView) -> str:
    return " · ".join(status_parts(view))


def status_parts(view: RunView) -> list[str]:
    """Status, phase, step, epoch, time left, attempt."""
    state = view.state
    parts = [view.status]
    if view.status == "running" and state.phase:
        parts.append(state.phase)
    if state.step is not None:
        total = f"/{state.total_steps:,}" if state.total_steps else ""
        parts.append(f"step {state.step:,}{total}")
    if state.epoch is not None:
        parts.append(f"epoch {_epoch(state.epoch)}" + (f"/{_epoch(state.epochs)}" if state.epochs else ""))
    if (left := state.eta_seconds()) is not None:
        parts.append(f"{duration(left)} left")
    if state.restart_count:
        resumed = f", from step {state.resumed_from_step:,}" if state.resumed_from_step is not None else ""
        parts.append(f"attempt {state.attempt}{resumed}")
    if state.dropped:
        parts.append(f"{sum(state.dropped.values()):,} events dropped")
    return parts


def _epoch(given: Any) -> str:
    # NaN and the infinities are texts in events.
    if isinstance(given, str):
        return given
    # A few steps of large data are a small part of an epoch, not 0.
    return f"{given:.1g}" if 0 < given < 0.01 else f"{round(given, 2):g}"


def numbers_line(view: RunView) -> str:
    """The last loss, evaluation loss, learning rate and speed, if they are reported."""
    wanted = (
        ("loss", "train/loss"),
        ("eval loss", "eval/loss"),
        ("lr", "train/learning_rate"),
        ("tokens/s", "train/tokens_per_second"),
        ("samples/s", "train/samples_per_second"),
    )
    found = ((label, view.last(series)) for label, series in wanted)
    return " · ".join(f"{label} {short(value)}" for label, value in found if value is not None)


def system_parts(system: dict[str, Any]) -> list[str]:
    """CPU, memory and every GPU, if they are reported."""
    system = {name: value for name, value in system.items() if isinstance(value, (int, float))}
    parts = []
    if "cpu/utilization" in system:
        parts.append(f"CPU {system['cpu/utilization']:.0f} %")
    if "ram/used" in system and "ram/total" in system:
        parts.append(f"RAM {system['ram/used'] / _GB:.1f}/{system['ram/total'] / _GB:.1f} GB")
    gpus = sorted({int(name.split("/")[1]) for name in system if name.startswith("gpu/")})
    return parts + [_gpu(number, system) for number in gpus]


def _gpu(number: int, system: dict[str, Any]) -> str:
    prefix = f"gpu/{number}/"
    parts = [f"GPU {number}"]
    if (busy := system.get(f"{prefix}utilization")) is not None:
        parts.append(f"{busy:.0f} %")
    used, total = system.get(f"{prefix}memory_used"), system.get(f"{prefix}memory_total")
    if used is not None and total is not None:
        parts.append(f"{used / _GB:.1f}/{total / _GB:.0f} GB")
    if (heat := system.get(f"{prefix}temperature")) is not None:
        parts.append(f"{heat:.0f} °C")
    if (power := system.get(f"{prefix}power")) is not None:
        parts.append(f"{power:.0f} W")
    return " ".join(parts)


def age(t: float | None) -> str:
    """How long ago an event was reported."""
    return "never" if t is None else f"{duration(max(0.0, time.time() - t))} ago"


def follow(run_dir: Path, is_alive: Callable[[], bool], console: Console) -> RunView:
    """Shows the run until `is_alive` returns False; returns its last state.

    Lines of output appear as they are written; a terminal has a progress bar below them.
    """
    view = RunView(run_dir)
    view.expect_new_attempt()
    show = _follow_in_terminal if console.is_terminal else follow_in_lines
    show(view, is_alive, console)
    return view


def _follow_in_terminal(view: RunView, is_alive: Callable[[], bool], console: Console) -> None:
    view.new_lines()
    with Live(_bar(view, console.width), console=console, auto_refresh=False, transient=False) as live:
        while True:
            alive = is_alive()
            view.look()
            for line in view.new_lines():
                _print(line, live.console)
            live.update(_bar(view, console.width), refresh=True)
            if not alive:
                return
            time.sleep(_FOLLOW_SECONDS)


def _bar(view: RunView, width: int) -> Table:
    if not view.has_begun:
        # What the run shows is from before this attempt.
        grid = Table.grid()
        grid.add_row(Text(view.status))
        return grid
    state = view.state
    grid = Table.grid(padding=(0, 1))
    status = Text(status_line(view))
    # Numbers are not cut: in a narrow terminal the bar is shorter or absent, and what is too long wraps.
    room = min(30, width - status.cell_len - 1)
    if room >= _SHORTEST_BAR:
        grid.add_row(
            ProgressBar(total=state.total_steps or None, completed=state.step or 0, width=room), status
        )
    else:
        grid.add_row(status)
    rows = Table.grid()
    rows.add_row(grid)
    if numbers := numbers_line(view):
        rows.add_row(Text(numbers, style="bold"))
    for problem in (*([view.rows_used] if view.rows_used else []), *view.new_findings):
        rows.add_row(Text(problem, style="yellow"))
    return rows


def follow_in_lines(view: RunView, is_alive: Callable[[], bool], console: Console) -> None:
    """Prints the output of the run until `is_alive` returns False, then its final status.

    If the run has begun, it first prints the findings so far and the current status. Without output, the
    status follows: after ten seconds, or a minute while it trains. At the end it prints the findings that
    were not printed before.
    """
    view.new_lines()
    last_line, last_text = time.monotonic(), ""
    before: list[str] = []
    if view.has_begun:
        before = view.findings
        for line in before:
            _print(line, console)
        last_text = _summary(view)
        _print(last_text, console)
    while True:
        alive = is_alive()
        view.look()
        for line in view.new_lines():
            _print(line, console)
            last_line = time.monotonic()
        quiet = _QUIET_TRAINING_SECONDS if view.state.phase == "train" else _QUIET_SECONDS
        due = time.monotonic() - last_line >= quiet
        text = _summary(view)
        if view.has_begun and (due or not alive) and text != last_text:
            _print(text, console)
            last_line, last_text = time.monotonic(), text
        if not alive:
            if not view.has_begun:
                # The process refused to start; what the run showed before is not its answer.
                return
            improvement = None if view.status == "failed" else view.improvement
            new = [line for line in view.new_findings if line not in before]
            for line in (*new, *filter(None, [improvement])):
                _print(line, console)
            return
        time.sleep(_FOLLOW_SECONDS)


def _print(line: str, console: Console) -> None:
    level = line.partition(":")[0]
    style = {"warning": "yellow", "error": "red"}.get(level)
    console.print(line, style=style, soft_wrap=True)


def _summary(view: RunView) -> str:
    parts = (status_line(view), view.rows_used, numbers_line(view))
    return " · ".join(part for part in parts if part)
