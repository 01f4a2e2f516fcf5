"""What is wrong with a run: pure functions over a Reading, one for each kind of finding.

`rules.py` looks at how a run goes, `quality.py` at what comes out of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpubloom.traincard.diagnosis.quality import (
    diverging,
    few_rows_used,
    is_of_evaluation,
    logged_warnings,
    no_learning,
    overfitting,
)
from gpubloom.traincard.diagnosis.rules import (
    Limits,
    data_starved,
    degraded,
    missing_ranks,
    out_of_memory_soon,
    stalled,
    straggler,
    throttled,
)
from gpubloom.traincard.findings import Finding, saying_no_best, worst_first
from gpubloom.traincard.reading import Reading

__all__ = ["Finding", "Limits", "diagnose"]

Diagnosis = Callable[[Reading, float, Limits], Iterator[Finding]]

# A loss that is not a number is also worth knowing when the run is over; a hot GPU only while it trains.
_ALWAYS: tuple[Diagnosis, ...] = (diverging, few_rows_used, overfitting, no_learning, logged_warnings)
_UNTIL_THE_END: tuple[Diagnosis, ...] = (degraded, *_ALWAYS)
_WHILE_IT_LIVES: tuple[Diagnosis, ...] = (
    stalled, missing_ranks, straggler, data_starved, throttled, out_of_memory_soon, *_UNTIL_THE_END,
)  # fmt: skip


def diagnose(reading: Reading, now: float | None = None, limits: Limits | None = None) -> list[Finding]:
    """Everything that is wrong with a run, worst first. `now`: the observer's clock, seconds since 1970."""
    moment = reading.now() if now is None else now
    main = reading.ranks.get(0)
    if reading.state.status != "running":
        kinds = _ALWAYS
    elif main is not None and main.life(moment) == "dead":
        kinds = _UNTIL_THE_END
    else:
        kinds = _WHILE_IT_LIVES
    found = [finding for kind in kinds for finding in kind(reading, moment, limits or Limits())]
    return worst_first(map(saying_no_best, _causes(found)))


def _causes(found: Sequence[Finding]) -> Iterator[Finding]:
    """The findings that do not follow from another one. `explains` holds the kinds of those that do: a rule
    for alerts that names such a kind still applies."""
    for finding in found:
        if any(_follows(finding, cause) for cause in found):
            continue
        explains = sorted({each.kind for each in found if _follows(each, finding)})
        yield replace(finding, evidence={**finding.evidence, "explains": explains}) if explains else finding


def _follows(finding: Finding, cause: Finding) -> bool:
    match cause.kind, finding.kind:
        case "degraded", "stalled":
            return cause.severity == "critical"
        case "diverging", "no_learning" | "overfitting":
            return not is_of_evaluation(cause)
        case "overfitting", "diverging":
            return is_of_evaluation(finding)
        # What is not learned is not memorized.
        case "no_learning", "overfitting":
            return True
    return False
