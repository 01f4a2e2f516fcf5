"""The retry policy: what can heal is tried again, after growing pauses, up to a limit.

The caller says which failures pass by themselves: a network or a database that is away, a provider without
capacity. Everything else (a wrong statement, a refusal) is raised at once.

Standard library only, because the agent uses it on machines where nothing is installed. The policies for
database work are in `gpubloom.worker.retries`.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class RetryPolicy:
    """How long to pause between two calls, and when to give up; seconds.

    Each pause is twice as long as the one before, up to `longest_pause`. The last failure is raised after
    `max_calls` calls, or when the next call would come more than `max_seconds` after the first. Both are None
    only where something else ends the loop, such as the cancellation of a job.
    """

    first_pause: float
    longest_pause: float
    max_calls: int | None = None
    max_seconds: float | None = None

    def pause_after(self, failures: int) -> float:
        """The pause after so many failures in a row, the first being 1."""
        return min(self.first_pause * 2.0 ** min(failures - 1, 30), self.longest_pause)

    def next_pause(self, failures: int, elapsed_seconds: float) -> float | None:
        """The pause before the next call; None: there is no next call."""
        pause = self.pause_after(failures)
        if self.max_calls is not None and failures >= self.max_calls:
            return None
        return None if self.max_seconds is not None and elapsed_seconds + pause > self.max_seconds else pause


def is_host_not_found(problem: object) -> bool:
    """Whether a name server was asked and knows no such host: it would say so again."""
    return isinstance(problem, socket.gaierror) and problem.errno == socket.EAI_NONAME


def retry(
    call: Callable[[], Result],
    policy: RetryPolicy,
    *,
    is_transient: Callable[[Exception], bool],
    wait: Callable[[Exception, float], None],
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Return the result of `call`. `wait` gets the failure and the pause; it sleeps, and may log or raise."""
    began, failures = clock(), 0
    while True:
        try:
            return call()
        except Exception as problem:
            failures += 1
            pause = policy.next_pause(failures, clock() - began) if is_transient(problem) else None
            if pause is None:
                raise
            failure = problem
        wait(failure, pause)


async def retry_async(
    call: Callable[[], Awaitable[Result]],
    policy: RetryPolicy,
    *,
    is_transient: Callable[[Exception], bool],
    wait: Callable[[Exception, float], Awaitable[None]] = lambda _, pause: asyncio.sleep(pause),
) -> Result:
    """The same for a coroutine."""
    began, failures = time.monotonic(), 0
    while True:
        try:
            return await call()
        except Exception as problem:
            failures += 1
            pause = policy.next_pause(failures, time.monotonic() - began) if is_transient(problem) else None
            if pause is None:
                raise
            failure = problem
        await wait(failure, pause)
