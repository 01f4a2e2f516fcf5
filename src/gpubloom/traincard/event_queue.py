"""Between the training thread and the writer: a queue that is bounded, never waits, and counts its drops.

Putting an event is one length check and one `deque.append`. Only a caller that finds the queue full takes a
lock, to drop the oldest event and count it. The writer takes no lock at all: a signal handler may interrupt
the lock's holder and then wait for the writer, which must not wait for that lock in turn.
"""

import heapq
import threading
from collections import Counter, deque
from operator import itemgetter
from typing import Any

# (kind, time, step, name or fields, value, tags): a tuple, because nothing is cheaper for a caller to make.
Event = tuple[str, float, Any, Any, Any, Any]

DROPPABLE = frozenset({"metric", "metrics", "progress", "system", "heartbeat", "log", "output", "sample"})

_PUBLIC_KINDS = {"metrics": "metric", "output": "log"}


class EventQueue:
    """Many threads put; one takes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._droppable: deque[Event] = deque()
        self._kept: deque[Event] = deque()
        self._dropped_ever = dict.fromkeys(map(public_kind, DROPPABLE), 0)
        self._dropped_told: dict[str, int] = dict(self._dropped_ever)
        self._lock = threading.RLock()

    def put(self, event: Event) -> None:
        """Adds an event that may be dropped, at the cost of the oldest one when there are too many."""
        if len(self._droppable) >= self.capacity:
            self._make_room()
        self._droppable.append(event)

    def put_kept(self, event: Event) -> None:
        """Adds an event that is never dropped."""
        self._kept.append(event)

    def _make_room(self) -> None:
        with self._lock:
            while len(self._droppable) >= self.capacity:
                try:
                    oldest = self._droppable.popleft()
                except IndexError:
                    return
                self._dropped_ever[public_kind(oldest[0])] += 1

    def take(self) -> tuple[list[Event], Counter[str]]:
        """Everything that is there now, oldest first, and what was dropped since the last time."""
        batch = _take_all(self._droppable)
        if kept := _take_all(self._kept):
            batch = list(heapq.merge(batch, kept, key=itemgetter(1)))
        ever = dict(self._dropped_ever)
        dropped = Counter({kind: ever[kind] - self._dropped_told[kind] for kind in ever})
        self._dropped_told = ever
        return batch, +dropped


def _take_all(events: deque[Event]) -> list[Event]:
    taken: list[Event] = []
    try:
        # Not until empty: callers may add as fast as this loop takes.
        for _ in range(len(events)):
            taken.append(events.popleft())  # noqa: PERF401 - a comprehension would lose all when another pops
    except IndexError:
        pass
    return taken


def public_kind(kind: str) -> str:
    """The event kind of the protocol. The queue's own: several metrics at once, and printed text."""
    return _PUBLIC_KINDS.get(kind, kind)
