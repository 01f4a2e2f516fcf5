"""A finding: one sentence for a person, and what it rests on."""

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Kind = Literal["stalled", "degraded", "diverging", "data_starved", "throttled", "out_of_memory_soon"]
Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a run. `since`: seconds since 1970, or None when nobody knows."""

    kind: Kind
    severity: Severity
    sentence: str
    evidence: dict[str, Any] = field(default_factory=dict)
    since: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON holds it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is wrong. Seconds, fractions of one, °C."""

    stall_seconds: float = 300.0
    idle_gpu: float = 0.10
    spike_deviations: float = 8.0
    spike_share: float = 0.5
    waiting_for_data: float = 0.3
    hot: float = 87.0
    slow_clock: float = 0.75
    memory_full: float = 0.95
    memory_seconds_left: float = 900.0


def duration(seconds: float) -> str:
    """2 h 05 min, 3 min 20 s, 12 s."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole} s"


def clock_time(t: float | None) -> str:
    """A moment in UTC; the evidence has the number, for viewers that know the reader's time zone."""
    return "an unknown time" if t is None else f"{datetime.fromtimestamp(t, UTC):%H:%M:%S} UTC"
