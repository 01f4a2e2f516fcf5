"""Database work that is done again while the database is away, because runs go on meanwhile.

Only an outage is waited for, and not for ever. Who gives up loses nothing: the lease runs out, and the job is
followed again once the database answers.

Calls that may take long or have to be made again, for whoever attends a job on a rented machine.
"""

import asyncio
import errno
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

Result = TypeVar("Result")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
LONGEST_OUTAGE_SECONDS = 600.0
_UNREACHABLE = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}


class DatabaseUnavailable(Exception):
    """The database did not answer for as long as anybody waits for it."""


async def persist(work: Callable[[], Awaitable[Result]], log: structlog.stdlib.BoundLogger) -> Result:
    """Do it again while the database is away; a statement that is wrong raises at once.

    DatabaseUnavailable after LONGEST_OUTAGE_SECONDS.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            return await work()
        except (SQLAlchemyError, OSError) as problem:
            if not is_outage(problem):
                raise
            reason = type(problem).__name__
            if time.monotonic() - began > LONGEST_OUTAGE_SECONDS:
                raise DatabaseUnavailable(
                    f"The database did not answer for {LONGEST_OUTAGE_SECONDS:g} seconds ({reason})."
                ) from problem
            log.warning("the database does not answer, trying again", reason=reason)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def is_outage(problem: BaseException) -> bool:
    """Whether the database is away, not the statement wrong."""
    if isinstance(problem, DatabaseUnavailable | NoFreeConnection):
        return True
    if isinstance(problem, DBAPIError):
        if isinstance(problem.orig, sqlite3.Error):
            return isinstance(problem, OperationalError) and not _is_wrong_sqlite_statement(problem.orig)
        return problem.connection_invalidated or isinstance(problem, OperationalError | InterfaceError)
    return isinstance(problem, ConnectionError | TimeoutError | socket.gaierror) or (
        isinstance(problem, OSError) and problem.errno in _UNREACHABLE
    )


def _is_wrong_sqlite_statement(problem: sqlite3.Error) -> bool:
    """SQLite reports a table that is not there under the same class as a file that is locked."""
    return getattr(problem, "sqlite_errorname", None) == "SQLITE_ERROR"


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
