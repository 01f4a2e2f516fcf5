"""Waits for what happens in another thread or process. A wait ends with its event, never with a moment."""

import time
from collections.abc import Callable

# Far more than anything takes, so that a busy machine fails no test.
TIMEOUT_SECONDS = 120.0


def wait_until(condition: Callable[[], object], what: str = "", seconds: float = TIMEOUT_SECONDS) -> None:
    """Look again and again until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} seconds in vain: {what or condition}"
        time.sleep(0.01)
