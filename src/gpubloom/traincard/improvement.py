"""Did it improve? One answer from the evaluations of a run, for job page, card, terminal and API.

The eval loss is compared with the first evaluation, which is the base model's where a run begins with one.
Our trainers also report how sure the change is (`eval/loss_change` with its 95 % margin, paired by held-out
batch): a change within its margin is called "no clear change". Without a margin, small changes are noise.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

from gpubloom.traincard.findings import finding_title, has_no_best
from gpubloom.traincard.reading import Reading

LOSS, CHANGE, MARGIN = "eval/loss", "eval/loss_change", "eval/loss_change_margin"

Verdict = Literal["yes", "no", "unclear"]

# Of the first loss: what an evaluation that says nothing of its own spread may be off by.
_NOISE = 0.005
# With one of these no evaluation of the run means what it seems to.
_SPOILING = ("diverging", "few_rows_used")


@dataclass(frozen=True, slots=True)
class EvaluatedStep:
    """One evaluation."""

    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class Improvement:
    """`change` and its interval compare `compared` with the first evaluation; they may be unknown.

    The evaluations are those with a finite loss. `not_finite_since`: from this step on no evaluation had one.
    """

    verdict: Verdict
    text: str
    first: EvaluatedStep
    lowest: EvaluatedStep
    latest: EvaluatedStep
    not_finite_since: int | None
    compared: EvaluatedStep
    change: float
    low: float | None
    high: float | None
    # Whether the lowest step may be called the best one.
    has_best: bool

    @property
    def interval(self) -> str | None:
        """The interval in words."""
        if self.low is None or self.high is None:
            return None
        return f"change {self.change:+.4g}, 95 % interval {self.low:+.4g} to {self.high:+.4g}"

    @property
    def line(self) -> str:
        """One line for a terminal."""
        first = "the base model" if self.first.step == 0 else f"step {self.first.step:,}"
        details = [f"eval loss {self.first.loss:.4g} at {first}"]
        if self.compared != self.first:
            last = "" if self.not_finite_since is None else "last finite "
            details.append(f"{last}{self.compared.loss:.4g} at step {self.compared.step:,}")
        return f"Did it improve? {self.text} ({', '.join([*details, *filter(None, [self.interval])])})"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "interval": self.interval, "line": self.line}


def improvement_of(reading: Reading, kinds: Iterable[str]) -> Improvement | None:
    """Of a run as it stands, with findings of these kinds; None: it was not evaluated."""
    losses, changes, margins = (_newest(reading, name) for name in (LOSS, CHANGE, MARGIN))
    return judge(losses, changes, margins, set(kinds))


def _newest(reading: Reading, name: str) -> dict[int, float]:
    curves = reading.curves.attempts(name, 0)
    return newest_by_step(
        (attempt, step, value)
        for attempt, curve in curves.items()
        for step, value in zip(curve.last, curve.value, strict=True)
    )


def newest_by_step(values: Iterable[tuple[int, float, float]]) -> dict[int, float]:
    """Attempt, step and value as values by step; an attempt replaces the earlier ones from where it began."""
    found: dict[int, float] = {}
    for _, rows in groupby(sorted(values, key=lambda row: row[:2]), key=lambda row: row[0]):
        new = {int(step): value for _, step, value in rows}
        begin = min(new)
        found = {step: value for step, value in found.items() if step < begin} | new
    return found


def judge(
    losses: Mapping[int, float],
    changes: Mapping[int, float],
    margins: Mapping[int, float],
    kinds: Collection[str],
) -> Improvement | None:
    """From eval losses by step, their changes since the first with margins, and the findings of the run."""
    points = [EvaluatedStep(step, loss) for step, loss in sorted(losses.items()) if math.isfinite(loss)]
    if not points:
        return None
    first, latest = points[0], points[-1]
    not_finite_since = min((step for step in losses if step > latest.step), default=None)
    lowest = min(points, key=lambda point: point.loss)
    compared = latest if lowest == first else lowest
    change, margin = compared.loss - first.loss, None
    if compared != first and compared.step in changes and compared.step in margins:
        change, margin = changes[compared.step], margins[compared.step]
    verdict, text = _verdict(points, first, lowest, latest, change, margin, kinds)
    if not_finite_since is not None:
        verdict, text = "no", f"No: the eval loss has not been finite since step {not_finite_since:,}"
    if verdict == "no":
        compared, change = latest, latest.loss - first.loss
        change, margin = changes.get(latest.step, change), margins.get(latest.step)
    return Improvement(
        verdict,
        text,
        first,
        lowest,
        latest,
        not_finite_since,
        compared,
        change,
        None if margin is None else change - margin,
        None if margin is None else change + margin,
        has_best=verdict == "yes" and not has_no_best(kinds),
    )


def _verdict(
    points: list[EvaluatedStep],
    first: EvaluatedStep,
    lowest: EvaluatedStep,
    latest: EvaluatedStep,
    change: float,
    margin: float | None,
    kinds: Collection[str],
) -> tuple[Verdict, str]:
    spoiling = next((kind for kind in _SPOILING if kind in kinds), None)
    if spoiling is not None:
        return "no", f"No: {finding_title(spoiling).lower()}"
    if len(points) < 2:
        return "unclear", "Not clear: only one evaluation"
    noise = _NOISE * abs(first.loss or 1) if margin is None else margin
    if abs(change) <= noise:
        return "unclear", "No clear change"
    if lowest == first:
        return "no", "No: the eval loss rose"
    if "overfitting" in kinds:
        return "yes", f"Yes, up to step {lowest.step:,}; then it overfits"
    return "yes", "Yes" if lowest == latest else f"Yes, up to step {lowest.step:,}"
