"""A run as a viewer sees it: its state, its curves, and whether anybody still trains."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpubloom.cli.chart import Line, short
from gpubloom.traincard import Curve, Curves, Reader, Reading, RunLock, RunState, diagnose
from gpubloom.traincard.lines import RENDERED_KINDS, RunLines, log_line, rows_used
from gpubloom.traincard.number_encoding import decode_number

_GIB = 1024**3
_MOST_WARNINGS = 10


class RunView:
    """Follows one run directory; `look` takes in what is new. Its memory is bounded, however long the run."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._reading = Reading(run_dir)
        self._alive = False
        self._attempt_to_come = 0
        self._events: Reader | None = None
        self._lines = RunLines()

    @property
    def state(self) -> RunState:
        return self._reading.state

    @property
    def curves(self) -> Curves:
        return self._reading.curves

    @property
    def findings(self) -> list[str]:
        """What is wrong with the run as it stands."""
        return [finding.sentence for finding in diagnose(self._reading)]

    @property
    def warnings(self) -> list[str]:
        """The last warnings and errors of its log, each once however often a restart repeats it."""
        said = [log_line(line.level, line.line) for line in self._reading.log if line.level != "info"]
        return list(dict.fromkeys(reversed(said)))[:_MOST_WARNINGS][::-1]

    @property
    def rows_used(self) -> str | None:
        """Such as "20 of 120 rows used"; None when all are, or nobody counted."""
        return rows_used(self.state.facts, only_if_fewer=True)

    def new_lines(self) -> list[str]:
        """The lines of the run's output since the last call; the first call begins where the view stands."""
        if self._events is None:
            # Rank 0 speaks for the run.
            cursor = self._reading.cursor
            self._events = Reader(self.run_dir, ranks=[0], cursor=cursor, kinds=RENDERED_KINDS)
        found: list[str] = []
        while events := self._events.read_new():
            for event in events:
                found += self._lines.render(event.kind, event.t, event.step, event.fields)
        return found

    def look(self) -> bool:
        """Takes in all that is new; says whether there was anything."""
        # Asked first: a run that ends between the two questions is then asked once more, not called dead
        # too early.
        self._alive = RunLock.holder(self.run_dir) is not None
        return self._reading.update()

    def expect_new_attempt(self) -> None:
        """Says that a process was just started here: what is on file, unless somebody trains, is the past."""
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
        """In a person's words: a run of this machine that says "running" while nobody holds it was killed."""
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
    """Phase, step, epoch, time left, attempt."""
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
    return " · ".join(parts)


def _epoch(given: Any) -> str:
    # What a run says of NaN and the infinities is text.
    return given if isinstance(given, str) else f"{round(given, 2):g}"


def numbers_line(view: RunView) -> str:
    """The last loss, evaluation loss, learning rate and speed, as far as they are reported."""
    wanted = (
        ("loss", "train/loss"),
        ("eval loss", "eval/loss"),
        ("lr", "train/learning_rate"),
        ("tokens/s", "train/tokens_per_second"),
    )
    found = ((label, view.last(series)) for label, series in wanted)
    return " · ".join(f"{label} {short(value)}" for label, value in found if value is not None)


def system_line(system: dict[str, Any]) -> str:
    """CPU, memory and every GPU, as far as the machine tells."""
    system = {name: value for name, value in system.items() if isinstance(value, (int, float))}
    parts = []
    if "cpu/utilization" in system:
        parts.append(f"CPU {system['cpu/utilization']:.0f} %")
    if "ram/used" in system and "ram/total" in system:
        parts.append(f"RAM {system['ram/used'] / _GIB:.1f}/{system['ram/total'] / _GIB:.1f} GiB")
    gpus = sorted({int(name.split("/")[1]) for name in system if name.startswith("gpu/")})
    parts += [_gpu(number, system) for number in gpus]
    return " · ".join(parts)


def _gpu(number: int, system: dict[str, Any]) -> str:
    prefix = f"gpu/{number}/"
    parts = [f"GPU {number}"]
    if (busy := system.get(f"{prefix}utilization")) is not None:
        parts.append(f"{busy:.0f} %")
    used, total = system.get(f"{prefix}memory_used"), system.get(f"{prefix}memory_total")
    if used is not None and total is not None:
        parts.append(f"{used / _GIB:.1f}/{total / _GIB:.0f} GiB")
    if (heat := system.get(f"{prefix}temperature")) is not None:
        parts.append(f"{heat:.0f} °C")
    if (power := system.get(f"{prefix}power")) is not None:
        parts.append(f"{power:.0f} W")
    return " ".join(parts)


def duration(seconds: float) -> str:
    """1 h 05 min, 3 min 20 s, 12 s."""
    whole = round(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole} s"


def age(t: float | None) -> str:
    """How long ago something was reported."""
    return "never" if t is None else f"{duration(max(0.0, time.time() - t))} ago"
