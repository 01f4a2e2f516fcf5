"""Turns: who computes next. First come, first served, token by token: all answers advance together."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairLock:
    """A lock that is handed to whoever has waited longest; Python's own promises no order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Waits for a turn and gives it up at the end."""
        with self._guard:
            mine = threading.Event() if self._taken else None
            if mine is not None:
                self._waiting.append(mine)
            self._taken = True
        if mine is not None:
            mine.wait()
        try:
            yield
        finally:
            with self._guard:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._taken = False
