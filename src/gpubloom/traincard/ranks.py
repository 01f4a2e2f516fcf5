"""Each rank as its observer sees it: what it said last, what it promised, and whether it still lives.

Promises are counted by the observer's clock from the moment it saw them: clocks of machines differ. A process
on the observer's own machine is asked for directly, through its lock.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from gpubloom.traincard.reader import RunEvent

Life = Literal["alive", "silent", "dead", "ended"]

# What the Reporter's own heartbeats promise; older runs and those that said nothing yet are given the same.
OWN_PROMISE_SECONDS = 10.0
_GRACE_SECONDS = 1.0
# A process that holds its lock lives. It may be too busy to say so: a C extension that keeps Python waiting.
_LIVING_RANK_SECONDS = 60.0
_STEP_TIMES = 64

# Signs that the training loop moves, as opposed to its process being there.
LOOP_SIGNS = frozenset({"metric", "progress", "phase", "checkpoint", "resumed"})


@dataclass
class RankReading:
    """One rank of the newest attempt it took part in."""

    rank: int
    attempt: int = 0
    host: str | None = None
    pid: int | None = None
    started_at: float | None = None
    last_seen: float | None = None
    """The time of its last event, by its machine's clock."""
    seen_at: float = 0.0
    """When that was seen, by the observer's clock."""
    loop_last: float | None = None
    loop_seen_at: float = 0.0
    own_promise: float = OWN_PROMISE_SECONDS
    promise: float | None = None
    """What the loop promised last, unless it moved on since."""
    promised_last: float = 0.0
    step: int | None = None
    status: str | None = None
    """How it ended; None while it has not said so."""
    error: dict[str, Any] | None = None
    process_is_there: bool | None = None
    """None: on another machine, nobody knows."""
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_STEP_TIMES))

    def add(self, event: RunEvent, seen_at: float) -> None:
        fields = event.fields
        if event.kind == "start" and not (fields.get("continues") and self.attempt == event.attempt):
            self._begin(event, seen_at)
        self.last_seen, self.seen_at = event.t, seen_at
        if event.kind == "heartbeat":
            promise = fields.get("expect_next_in")
            if not isinstance(promise, (int, float)):
                return
            if fields.get("auto"):
                self.own_promise = promise
            else:
                self.promise, self.promised_last = promise, event.t
                self._moved(event, seen_at)
        elif event.kind in LOOP_SIGNS:
            self._moved(event, seen_at)
            # Compared by time: heartbeats of one write share a line that may stand before older metrics.
            if event.kind in {"metric", "progress"} and event.t > self.promised_last:
                self.promise = None
        elif event.kind == "error":
            self.error = dict(fields)
        elif event.kind == "end":
            self.status = str(fields.get("status", "ended"))
        if event.step is not None and event.kind in LOOP_SIGNS:
            self.step = event.step

    def _begin(self, event: RunEvent, seen_at: float) -> None:
        if event.attempt != self.attempt:
            self.step, self.error, self.started_at = None, None, event.t
            self.step_seconds.clear()
        self.attempt = event.attempt
        self.host, self.pid = event.fields.get("host"), event.fields.get("pid")
        self.status, self.promise, self.own_promise = None, None, OWN_PROMISE_SECONDS
        self.process_is_there = None
        self._moved(event, seen_at)

    def _moved(self, event: RunEvent, seen_at: float) -> None:
        self.loop_last, self.loop_seen_at = event.t, seen_at

    def seen_before(self, seconds: float) -> None:
        """The observer came late: the last event is so old already."""
        quiet_loop = max(0.0, (self.last_seen or 0.0) - (self.loop_last or self.last_seen or 0.0))
        self.seen_at -= seconds
        self.loop_seen_at = self.seen_at - quiet_loop

    def life(self, now: float) -> Life:
        """Whether it lives, as far as can be known from here."""
        if self.status is not None:
            return "ended"
        if self.process_is_there is False:
            return "dead"
        allowed = max(self.own_promise, self.promise or 0.0)
        if self.process_is_there:
            allowed = max(allowed, _LIVING_RANK_SECONDS)
        return "silent" if now - self.seen_at > allowed + _GRACE_SECONDS else "alive"

    def loop_is_quiet_for(self, now: float) -> float:
        """Seconds without a sign that the loop moves, beyond what it announced."""
        quiet = now - self.loop_seen_at
        return 0.0 if self.promise is not None and quiet <= self.promise + _GRACE_SECONDS else quiet
