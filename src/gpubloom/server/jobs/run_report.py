"""What a run says about itself, taken out of the free JSON of its summary where it has a field of its own."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunReport:
    """The fields of `JobOut` that a job's summary holds."""

    summary: dict[str, Any]
    rows_used: int | None
    rows_total: int | None
    warnings: list[dict[str, Any]]
    warnings_left_out: int


def read_run_report(summary: dict[str, Any]) -> RunReport:
    """What a summary holds, with what has a field of its own left out of the rest."""
    # Somebody's own script may describe anything.
    facts = summary.get("facts")
    used, total = (
        (facts.get("rows_used"), facts.get("rows_total")) if isinstance(facts, dict) else (None, None)
    )
    counted = isinstance(used, int) and isinstance(total, int)
    return RunReport(
        summary={
            name: value for name, value in summary.items() if name not in {"warnings", "warningsLeftOut"}
        },
        rows_used=used if counted else None,
        rows_total=total if counted else None,
        warnings=summary.get("warnings") or [],
        warnings_left_out=summary.get("warningsLeftOut") or 0,
    )
