"""What a job's row says about its run: the run's own latest.json, trimmed and in the API's spelling."""

from typing import Any

from gpubloom.traincard import RunEvent
from gpubloom.traincard.number_encoding import plain

_FIELDS = {
    "phase": "phase",
    "step": "step",
    "total_steps": "totalSteps",
    "epoch": "epoch",
    "epochs": "epochs",
    "eta_seconds": "etaSeconds",
    "restart_count": "restartCount",
    "resumed_from_step": "resumedFromStep",
    "control_version": "controlVersion",
    "updated_at": "updatedAt",
    "values": "values",
    "system": "system",
    "facts": "facts",
    "dropped": "dropped",
    "error": "error",
}
_MOST_MARKS = 200
# The summary is sent with every change of a job; the whole log is in the job's output.
MOST_WARNINGS = 20
_LONGEST_WARNING = 1_000


def summarize(before: dict[str, Any], latest: dict[str, Any] | None, damaged_lines: int) -> dict[str, Any]:
    """The new summary; marks are kept from the one before. NaN and the infinities are named, as on file."""
    summary = dict(before)
    if latest is not None:
        summary.update({to: plain(latest.get(name)) for name, to in _FIELDS.items()})
    if damaged_lines:
        summary["damagedLines"] = damaged_lines
    return summary


def add_marks(summary: dict[str, Any], events: list[RunEvent], settings: dict[str, Any]) -> None:
    """Moments that charts mark: a resumption, settings that took effect."""
    marks = list(summary.get("marks") or [])
    step = summary.get("step")
    for event in events:
        if event.step is not None:
            step = event.step
        if event.kind == "resumed":
            marks.append({"kind": "resumed", "attempt": event.attempt, "step": event.fields.get("from_step")})
        elif event.kind == "applied":
            marks.append(
                {
                    "kind": "applied",
                    "attempt": event.attempt,
                    "step": step or 0,
                    "settings": settings,
                    "refused": event.fields.get("refused"),
                }
            )
    summary["marks"] = marks[-_MOST_MARKS:]


def add_warnings(summary: dict[str, Any], events: list[RunEvent]) -> None:
    """Warnings and errors of the run's log: the first ones, each once however often a restart repeats it."""
    warnings = list(summary.get("warnings") or [])
    known = {warning["line"] for warning in warnings}
    for event in events:
        level, line = event.fields.get("level"), str(event.fields.get("line", ""))
        # A NUL or half a character that a run logged cannot be stored.
        line = line.encode("utf-8", "replace").decode().replace("\0", "")[:_LONGEST_WARNING]
        if event.kind != "log" or level not in {"warning", "error"} or line in known:
            continue
        if len(warnings) == MOST_WARNINGS:
            summary["warningsLeftOut"] = summary.get("warningsLeftOut", 0) + 1
            continue
        known.add(line)
        warnings.append({"level": level, "line": line, "attempt": event.attempt})
    if warnings:
        summary["warnings"] = warnings


def add_mark(summary: dict[str, Any], mark: dict[str, Any]) -> None:
    """A mark that the run itself did not set, such as a warning about a budget."""
    summary["marks"] = [*(summary.get("marks") or []), mark][-_MOST_MARKS:]
