"""The events of a run as lines of text: start, steps, evaluations, checkpoints, the end, and its log.

One place renders them. A trainer prints them (`PrintingReporter`), so that its output, on any machine, holds
them; `bloom train` and `bloom runs watch` render the same lines from the events on file. Which steps get a
line follows from the events alone, so both show the same.
"""

import contextlib
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from time import time
from typing import Any

from gpubloom.traincard.names import series_name
from gpubloom.traincard.number_encoding import decode_number
from gpubloom.traincard.reporter import Reporter

RENDERED_KINDS = ("describe", "log", "metric", "progress", "resumed", "checkpoint", "sample", "end")
# Lines about steps are at least so far apart, and at most so far unless steps take longer.
_CLOSEST_SECONDS = 1.0
_FARTHEST_SECONDS = 10.0
_STEP_LINES = 100
_STEP_VALUES = (("loss", "train/loss"), ("lr", "train/learning_rate"), ("tok/s", "train/tokens_per_second"))
_EVAL_VALUES = ("loss", "perplexity", "accuracy")
# The time left follows from the speed over the last lines about steps.
_SPEED_LINES = 10
_LEVELS = {"critical": "error", "warning": "warning", "info": "note"}


class RunLines:
    """Renders the events of rank 0, one after another."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._step: int | None = None
        self._last_line: float | None = None
        self._rows: str | None = None
        self._end: str | None = None
        self._shown: deque[tuple[float, int]] = deque(maxlen=_SPEED_LINES)

    def render(self, kind: str, t: float, step: int | None, fields: Mapping[str, Any]) -> Iterator[str]:
        """The lines that an event adds; most add none."""
        match kind:
            case "log":
                yield _logged(fields)
            case "describe":
                yield from self._described(fields.get("facts") or {})
            case "resumed":
                self._last_line = None
                self._shown.clear()
                yield f"resumed from step {_count(fields.get('from_step'))}"
            case "metric" if step is not None:
                yield from self._values(t, step, fields.get("values") or {}, fields.get("tags"))
            case "progress":
                self._total = fields.get("total_steps") or self._total
            case "checkpoint":
                yield _checkpoint(step, fields)
            case "sample":
                yield _sample(step, fields)
            case "end":
                yield from self._ended(str(fields.get("status", "ended")), fields.get("message"))

    def _described(self, facts: Mapping[str, Any]) -> Iterator[str]:
        if (rows := rows_used(facts)) is not None and rows != self._rows:
            self._rows = rows
            yield f"data: {rows}"
        if (total := facts.get("total_steps")) is not None:
            self._total, self._end, self._last_line = int(total), None, None
            details = [f"{self._total:,} {'step' if self._total == 1 else 'steps'}"]
            if (batch := facts.get("global_batch_size")) is not None:
                details[0] += f" of {batch:,} {'row' if batch == 1 else 'rows'}"
            details += [str(facts[name]) for name in ("method", "device") if facts.get(name)]
            yield f"training starts: {', '.join(details)}"

    def _values(
        self, t: float, step: int, values: Mapping[str, Any], tags: Mapping[str, object] | None
    ) -> Iterator[str]:
        found: dict[str, float] = {}
        for name, stored in values.items():
            value = decode_number(stored)
            # A tensor that is still on a device is not waited for.
            if isinstance(value, (int, float)):
                found[series_name(name, tags)] = value
        if "train/loss" in found:
            self._step = step
            if self._is_due(t, step):
                self._last_line = t
                yield (
                    f"step {self._of(step)}"
                    + "".join(
                        f"  {_number(label, found[name])}" for label, name in _STEP_VALUES if name in found
                    )
                    + self._left(t, step)
                )
        if any(f"eval/{name}" in found for name in _EVAL_VALUES):
            yield f"evaluation at step {step:,}" + "".join(
                f"  {name} {found[f'eval/{name}']:.4g}" for name in _EVAL_VALUES if f"eval/{name}" in found
            )

    def _left(self, t: float, step: int) -> str:
        self._shown.append((t, step))
        first_t, first_step = self._shown[0]
        if self._total is None or step >= self._total or step <= first_step or t <= first_t:
            return ""
        return f"  {duration((self._total - step) * (t - first_t) / (step - first_step))} left"

    def _is_due(self, t: float, step: int) -> bool:
        if self._last_line is None or step == self._total:
            return True
        waited = t - self._last_line
        # Round numbers, where steps are fast enough to choose.
        is_round = self._total is not None and step % _round_interval(self._total) == 0
        return waited >= _FARTHEST_SECONDS or (waited >= _CLOSEST_SECONDS and is_round)

    def _ended(self, status: str, message: object) -> Iterator[str]:
        if message == "SIGTERM":
            # The process was asked to stop; how the run ended is said once it has saved.
            yield "SIGTERM received: stopping"
            return
        # Refused before its first step: the sentence that follows says why.
        if status == self._end or status == "ended" or (status == "failed" and self._step is None):
            return
        self._end = status
        where = "" if self._step is None else f" at step {self._of(self._step)}"
        rows = "" if self._rows is None else f", {self._rows}"
        yield f"{status}{where}{rows}"

    def _of(self, step: int) -> str:
        return f"{step:,}" if self._total is None else f"{step:,}/{self._total:,}"


class PrintingReporter(Reporter):
    """A Reporter of rank 0 that also prints what it is told. For a process whose output is the run's own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._lines = RunLines()
        # What it prints is kept as its output already, and its lines say where the run is.
        super().__init__(*arguments, **{"capture": False, "announce": False, **options})

    def metric(self, name: str, value: Any, step: int, tags: Mapping[str, object] | None = None) -> None:
        super().metric(name, value, step, tags)
        self._print("metric", step, {"values": {name: value}, "tags": tags})

    def metrics(self, values: Mapping[str, Any], step: int, tags: Mapping[str, object] | None = None) -> None:
        super().metrics(values, step, tags)
        self._print("metric", step, {"values": values, "tags": tags})

    def event(self, kind: str, fields: Mapping[str, Any], step: int | None = None) -> None:
        super().event(kind, fields, step)
        self._print(kind, step, fields)

    def _print(self, kind: str, step: int | None, fields: Mapping[str, Any]) -> None:
        if self.is_on:
            print_lines(self._lines.render(kind, time(), step, fields))


def print_lines(lines: Iterable[str]) -> None:
    """Each in one write of its own: signal handlers print, too, and other processes share the pipe."""
    for line in lines:
        # Whoever read the output may be gone; the training goes on.
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.stdout.fileno(), f"{line}\n".encode("utf-8", "replace"))


def log_line(level: str, line: str) -> str:
    """A line of the log with its level in front; plain information has none."""
    return line if level == "info" else f"{level}: {line}"


def finding_line(severity: str, text: str) -> str:
    """A finding as a line: how much it matters, what is wrong, what to do."""
    return f"{_LEVELS.get(severity, severity)}: {text}"


def _logged(fields: Mapping[str, Any]) -> str:
    line, said = str(fields.get("line", "")), fields.get("finding")
    # Anybody can write the events of a run.
    if isinstance(said, dict) and said.get("severity") in tuple(_LEVELS):
        return finding_line(said["severity"], f"{line} {said.get('next_step', '')}".rstrip())
    return log_line(str(fields.get("level", "info")), line)


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


def rows_used(facts: Mapping[str, Any], *, only_if_fewer: bool = False) -> str | None:
    """How many rows of its data a run uses, such as "20 of 120 rows used"; None: nobody counted."""
    used, total = facts.get("rows_used"), facts.get("rows_total")
    if not isinstance(used, int) or not isinstance(total, int) or (only_if_fewer and used >= total):
        return None
    return f"{used:,} of {total:,} rows used"


def _round_interval(total: int) -> int:
    """1, 2, 5, 10, 20, …: about a hundred lines in a run."""
    interval = 1
    for factor in (2, 2.5, 2) * 20:
        if total / interval <= _STEP_LINES:
            break
        interval = int(interval * factor)
    return interval


def _checkpoint(step: int | None, fields: Mapping[str, Any]) -> str:
    name = PurePath(str(fields.get("path", ""))).name
    size = fields.get("size")
    details = [f"{size / 1e6:,.1f} MB"] if isinstance(size, (int, float)) else []
    details += ["best so far"] if fields.get("best") else []
    return f"saved checkpoint {name or _count(step)}" + (f" ({', '.join(details)})" if details else "")


def _sample(step: int | None, fields: Mapping[str, Any]) -> str:
    prompt, text = (" ".join(str(fields.get(name, "")).split()) for name in ("prompt", "text"))
    return f"sample at step {_count(step)}: {_short(prompt, 60)} → {_short(text, 160)}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _number(label: str, value: float) -> str:
    match label:
        case "loss":
            return f"loss {value:.4f}"
        case "lr":
            return f"lr {value:.1e}"
        case _:
            return f"{value / 1e3:.1f}k {label}" if value >= 1e3 else f"{value:.0f} {label}"


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
