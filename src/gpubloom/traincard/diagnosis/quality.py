"""Rules about the result of a run: how its losses went, how much of its data it used, what it logged.

Diverging: the loss is no longer a number, or far above where it was. No learning: the loss has not fallen at
all. Overfitting: the eval loss rises while training goes on. The rules also hold for a run that has ended: a
run that completed is not a run that went well.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from statistics import fmean, median
from typing import get_args

from gpubloom.traincard.diagnosis.rules import Limits
from gpubloom.traincard.findings import OF_DATA, Finding, Severity
from gpubloom.traincard.reading import LogLine, Point, Reading

# Of the lowest eval loss: an evaluation is noisy.
_RISE = 0.02
_FEWEST_EVALUATIONS_AFTER = 2
_FEWEST_FOR_NOISE = 8


def few_rows_used(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Less than half of the training data is trained."""
    used, total = reading.state.facts.get("rows_used"), reading.state.facts.get("rows_total")
    if not isinstance(used, int) or not isinstance(total, int) or total <= 0 or 2 * used >= total:
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
    """Each warning and error of the run's log, once; without those that repeat the error of an attempt."""
    failed = [(error["attempt"], str(error.get("message", "")).strip()) for error in reading.errors]
    for line in reading.warnings.values():
        if any(line.attempt == attempt and message and message in line.line for attempt, message in failed):
            continue
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
    return fmean(values[half:]) - fmean(values[:half]) > margin


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


_NEWEST = 5
_FEWEST_BEFORE = 20
# The median distance from the median of normal noise, as a standard deviation.
_DEVIATION_OF_MEDIAN_DISTANCE = 1.4826


def diverging(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """Losses and gradient norms of rank 0: one finding, about the series that shows the cause.

    What is no longer a number says more than a rise, and training more than the evaluation of its weights.
    """
    found = []
    for name, points in reading.recent.items():
        if not name.endswith(("loss", "grad_norm")):
            continue
        rules = [_not_a_number(name, list(points))]
        if name.endswith("loss"):
            rules += [_rise(name, reading), _spike(name, list(points), limits)]
        order, finding = next(((n, each) for n, each in enumerate(rules) if each), (0, None))
        if finding:
            is_eval, step = name.startswith("eval/"), finding.evidence.get("step", 0)
            found.append(((order, is_eval, step, name != "train/loss", name), finding))
    if not found:
        return
    (_, first), *others = sorted(found, key=lambda each: each[0])
    if names := [finding.evidence["series"] for _, finding in others]:
        also = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
        sentence = f"{first.sentence} Also diverging: {also}."
        first = replace(first, sentence=sentence, evidence={**first.evidence, "others": names})
    yield first


def is_of_evaluation(diverged: Finding) -> bool:
    """Whether only an eval loss jumped: the training itself goes on."""
    return diverged.severity == "warning" and diverged.evidence["series"].startswith("eval/")


_RISE_SHARE = 0.2
_FEWEST_FOR_RISE = 10


def _rise(name: str, reading: Reading) -> Finding | None:
    """The training loss ends far above where it began: slow or fast, such a run has diverged."""
    if name != "train/loss" or reading.state.resumed_from_step:
        return None
    curves = reading.curves.attempts(name, 0)
    values = [
        value
        for number in sorted(curves)
        for value in curves[number].condensed().value
        if math.isfinite(value)
    ]
    if len(values) < _FEWEST_FOR_RISE:
        return None
    part = max(3, len(values) // 10)
    begin, end = median(values[:part]), median(values[-part:])
    if end - begin <= _RISE_SHARE * abs(begin):
        return None
    return Finding(
        "diverging",
        "critical",
        f"{name} has risen from {begin:.4g} to {end:.4g}: the run has diverged.",
        {"series": name, "first": begin, "value": end},
        None,
        "Start again with a lower learning rate; the learning-rate finder suggests one.",
    )


_FEWEST_FOR_LEARNING = 500


def no_learning(reading: Reading, now: float, limits: Limits) -> Iterator[Finding]:
    """The training loss of a whole run lies where it began, within its own noise."""
    curves = reading.curves.attempts("train/loss", 0)
    values = [
        value
        for number in sorted(curves)
        for value in curves[number].condensed().value
        if math.isfinite(value)
    ]
    steps = reading.state.step or 0
    if steps < _FEWEST_FOR_LEARNING or len(values) < 20 or reading.state.resumed_from_step:
        return
    tenth = len(values) // 10
    begin, end = median(values[:tenth]), median(values[-tenth:])
    noise = _DEVIATION_OF_MEDIAN_DISTANCE * median(abs(value - median(values)) for value in values)
    if abs(begin) > 1e-3 and begin - end < max(0.01 * abs(begin), 0.1 * noise):
        yield Finding(
            "no_learning",
            "warning",
            f"train/loss has not fallen in {steps:,} steps: {begin:.4g} at the beginning, {end:.4g} now.",
            {"first": begin, "last": end, "steps": steps},
            None,
            "Check that the learning rate is not too low or too high, that parameters are trained, and that "
            "labels fit the rows.",
        )


def _not_a_number(name: str, points: list[Point]) -> Finding | None:
    bad = list(takewhile(lambda point: not math.isfinite(point.value), reversed(points)))
    if not bad:
        return None
    first = bad[-1]
    word = "NaN" if math.isnan(first.value) else "infinite"
    # One gradient norm that overflows is how mixed precision finds its scale; a loss is not.
    if name.endswith("grad_norm") and len(bad) < _NEWEST:
        return None
    return Finding(
        "diverging",
        "critical",
        f"{name} has been {word} since step {first.step:,.0f}.",
        {
            "series": name,
            "step": first.step,
            "value": word,
            "steps": len(bad),
            "before": _last_number(points),
        },
        first.t,
        "Resume from the last checkpoint before that step with a lower learning rate, and check the data of "
        "that step.",
    )


def _last_number(points: list[Point]) -> dict[str, float] | None:
    for point in reversed(points):
        if math.isfinite(point.value):
            return {"step": point.step, "value": point.value}
    return None


def _spike(name: str, points: list[Point], limits: Limits) -> Finding | None:
    points = [point for point in points if math.isfinite(point.value)]
    before = [point.value for point in points[:-_NEWEST]]
    if len(before) < _FEWEST_BEFORE:
        return None
    usual = median(before)
    deviation = _DEVIATION_OF_MEDIAN_DISTANCE * median(abs(value - usual) for value in before)
    # Both: far outside the noise, and much in itself. A falling loss lies below its own median.
    allowed = usual + max(limits.spike_deviations * deviation, limits.spike_share * abs(usual))
    newest = points[-_NEWEST:]
    high = median(point.value for point in newest)
    if high <= allowed:
        return None
    since = next(point for point in newest if point.value > allowed)
    return Finding(
        "diverging",
        "warning",
        f"{name} jumped to {high:.4g} at step {since.step:,.0f}. The typical value before was {usual:.4g}.",
        {"series": name, "step": since.step, "value": high, "usual": usual, "allowed": allowed},
        since.t,
    )
