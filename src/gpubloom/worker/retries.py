"""Calls that may take long or have to be made again, for whoever attends a job on a rented machine."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from gpubloom.worker.persisting import persist

Result = TypeVar("Result")


@dataclass(frozen=True)
class PollIntervals:
    """How often is looked where, and how long is waited for what; seconds.

    `margin`: how long before the longest life of a machine its job stops, so that all is delivered.
    `last_resort`: how long after its job's limit a machine ends itself; it had to boot, save and deliver.
    `agent`: fields of the agent's own pace (`agent.remote.start.Start`).
    """

    # As often as an agent sends; every look is a request that a bucket bills.
    receive: float = 3.0
    look: float = 10.0
    meter: float = 3.0
    checkpoint: float = 120.0
    first_word: float = 1800.0
    first_pause: float = 5.0
    longest_pause: float = 300.0
    margin: float = 900.0
    terminate: float = 30.0
    last_resort: float = 7200.0
    agent: Mapping[str, Any] = field(default_factory=dict)


class RetryingCalls:
    """A thread of its own: a bucket that is away must not keep others from theirs."""

    def __init__(self, name: str, log: structlog.stdlib.BoundLogger) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._log = log

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def insist(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Database work, again while the database is away; the machine goes on meanwhile."""
        return await persist(work, self._log)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
