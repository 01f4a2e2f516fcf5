"""Launches for tests of providers."""

import time
from collections.abc import Callable
from typing import Any

from gpubloom.providers.cloud import Launch

# As secret as a real one: who has it can write into the job.
ADDRESS = "https://bucket.test/bloom/jobs/1/start.py?X-Signature=Hidden-Signature&a='b'"
TIMEOUT_SECONDS = 120.0


def launch(key: str = "bloom-5f3c-a1", **changes: Any) -> Launch:
    """A job that keeps what it was told and then stays."""
    wanted: dict[str, Any] = {
        "gpu": "A10",
        "gpus": 1,
        # Renamed into place, so that a test which sees the file sees all of it.
        "command": 'cd; printf %s "$BLOOM_START" >part && mv part told; echo started; sleep 600',
        "start_address": ADDRESS,
    }
    return Launch(key, **{**wanted, **changes})


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
