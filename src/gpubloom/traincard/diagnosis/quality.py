"""Rules about the result of a run: what it logged as a warning, how much of its data it used, overfitting.

They also hold for a run that has ended: a run that completed is not a run that went well.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import get_args

from gpubloom.traincard.diagnosis.rules import Limits
from gpubloom.traincard.findings import OF_DATA, Finding, Severity
from gpubloom.traincard.reading import LogLine, Reading

_FEW_ROWS = 0.5
# Of the lowest eval loss: an evaluation is noisy.
_RISE = 0.02
_FEWEST_EVALUATIONS_AFTER = 2
_FEWEST_FOR_NOISE = 8


def few_rows_used(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Less than half of the training data is trained."""
    used, total = reading.state.facts.get("rows_used"), reading.state.facts.get("rows_total")
    if not isinstance(used, int) or not isinstance(total, int) or total <= 0 or used / total >= _FEW_ROWS:
        return
    yield Finding(
        "few_rows_used",
        "critical",
        f"Only {used:,} of {total:,} rows of the training data are used.",
        {"rows_used": used, "rows_total": total},
        None,
        "Read why rows are left out, then change the data, the format or the chat template and start again.",
    )


def logged_warnings(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Each warning and error of the run's log, once."""
    for line in reading.warnings.values():
        if (known := _of_data(line)) is not None:
            yield known
            continue
        is_error = line.level == "error"
        yield Finding(
            "run_error" if is_error else "run_warning",
            "critical" if is_error else "warning",
            line.line,
            {"attempt": line.attempt},
            line.t,
        )


def _of_data(line: LogLine) -> Finding | None:
    """What the trainer says of its data, with its kind, severity and next step; None of any other line."""
    said = line.finding or {}
    kind, next_step = said.get("kind"), said.get("next_step")
    severity: Severity | None = next((s for s in get_args(Severity) if s == said.get("severity")), None)
    # Anybody can write the events of a run.
    if not isinstance(kind, str) or kind not in OF_DATA or severity is None or not isinstance(next_step, str):
        return None
    return Finding(kind, severity, line.line, {"attempt": line.attempt}, line.t, next_step)


def _rises(values: Sequence[float]) -> bool:
    """Whether the later half lies above the earlier half by more than chance; of few values, always.

    The lowest of many noisy evaluations lies below all others also when the curve is flat.
    """
    if len(values) < _FEWEST_FOR_NOISE:
        return True
    half = len(values) // 2
    # Neighbours differ by noise, a trend is small between two of them.
    noise = math.sqrt(
        sum((after - before) ** 2 for before, after in pairwise(values)) / (2 * (len(values) - 1))
    )
    margin = 2 * noise * 2 / math.sqrt(len(values))
    return statistics.fmean(values[half:]) - statistics.fmean(values[:half]) > margin


def overfitting(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """The eval loss rises while training goes on: after its lowest point the model memorizes the rows."""
    curves = {number: curve.condensed() for number, curve in reading.curves.attempts("eval/loss", 0).items()}
    points = sorted(
        {
            step: value
            for number in sorted(curves)
            for step, value in zip(curves[number].last, curves[number].value, strict=True)
            if math.isfinite(value)
        }.items()
    )
    if len(points) <= _FEWEST_EVALUATIONS_AFTER:
        return
    best_step, best = min(points, key=lambda point: point[1])
    after = [value for step, value in points if step > best_step]
    last = points[-1][1]
    if len(after) < _FEWEST_EVALUATIONS_AFTER or last - best < _RISE * abs(best):
        return
    # Two rises in a row: one bad evaluation is an accident.
    if min(after[-_FEWEST_EVALUATIONS_AFTER:]) - best < _RISE / 2 * abs(best):
        return
    if not _rises(after):
        return
    yield Finding(
        "overfitting",
        "warning",
        f"The eval loss has risen since step {best_step:,.0f}: {best:.4g}, now {last:.4g}.",
        {"best_step": best_step, "best": best, "last": last},
        None,
        f"Use the checkpoint nearest to step {best_step:,.0f}. More data, fewer epochs or a lower learning "
        "rate reduce overfitting.",
    )
