"""The state of a run that no worker follows, from what the run itself reports (latest.json)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpubloom.server.jobs.states import Status
from gpubloom.server.schema import storable

_LONGEST_MESSAGE = 2_000
KILLED = "The process of this run ended without a report: it was killed, or its machine was lost."
# Other words of a Reporter count as stopped.
_STATUSES: dict[str, Status] = {
    "running": "running",
    "completed": "completed",
    "ended": "completed",
    "failed": "failed",
    "killed": "failed",
    "paused": "paused",
}


@dataclass(frozen=True)
class ReportedState:
    """None: the run does not say."""

    status: Status
    attempt: int | None
    started: datetime | None
    updated: datetime | None
    error_code: str | None = None
    error_message: str | None = None


def reported_state(latest: Mapping[str, Any]) -> ReportedState:
    """What latest.json says. A script may have written anything into it."""
    said = str(latest.get("status", "running"))
    status = reported_status(said)
    attempt, error = latest.get("attempt"), latest.get("error")
    code = message = None
    if status == "failed" and isinstance(error, Mapping):
        cause = error.get("cause")
        code = storable(cause)[:64] if isinstance(cause, str) else None
        message = storable(f"{error.get('type')}: {error.get('message')}")[:_LONGEST_MESSAGE]
    elif said == "killed":
        message = KILLED
    return ReportedState(
        status,
        attempt if isinstance(attempt, int) and 0 <= attempt < 1 << 31 else None,
        _moment(latest.get("started_at")),
        _moment(latest.get("updated_at")),
        code,
        message,
    )


def reported_status(said: str) -> Status:
    """The state that a word of a Reporter means."""
    return _STATUSES.get(said, "cancelled")


def _moment(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(seconds), UTC) if isinstance(seconds, int | float) else None
    except (ValueError, OverflowError, OSError):
        return None
