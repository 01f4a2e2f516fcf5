"""Between the training thread and the writer: a queue that is bounded, never waits, and counts its drops.

`put` is one length check and one `deque.append`. Only when the queue is full does the caller take a lock,
to make room by dropping the oldest event that may be dropped. The lock is reentrant because a signal
handler may interrupt its holder and put an event itself.
"""

import threading
from collections import Counter, deque
from typing import Any

# (kind, time, step, name or fields, value, tags): a tuple, because building one is the cheapest thing a
# caller can do.
Event = tuple[str, float, int | None, Any, Any, Any]

DROPPABLE = frozenset({"metric", "metrics", "progress", "system", "heartbeat", "log"})


class EventQueue:
    """Many threads put; one takes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._events: deque[Event] = deque()
        # Events that may not be dropped but were oldest when room had to be made: still first in order.
        self._kept: deque[Event] = deque()
        self._dropped: Counter[str] = Counter()
        self._lock = threading.RLock()

    def put(self, event: Event) -> None:
        if len(self._events) >= self.capacity:
            self._make_room()
        self._events.append(event)

    def _make_room(self) -> None:
        with self._lock:
            while len(self._events) >= self.capacity:
                oldest = self._events.popleft()
                if oldest[0] in DROPPABLE:
                    self._dropped[public_kind(oldest[0])] += 1
                else:
                    self._kept.append(oldest)

    def take(self) -> tuple[list[Event], Counter[str]]:
        """Everything that is there now, oldest first, and what was dropped since the last time."""
        with self._lock:
            batch = list(self._kept)
            self._kept.clear()
            batch.extend(self._events.popleft() for _ in range(len(self._events)))
            dropped, self._dropped = self._dropped, Counter()
        return batch, dropped


def public_kind(kind: str) -> str:
    """The event kind of the protocol: `metrics` is only the queue's word for several metrics at once."""
    return "metric" if kind == "metrics" else kind
