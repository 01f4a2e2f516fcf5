"""Database work that is repeated while the database is away, because training goes on meanwhile.

Only an outage is waited for, and not for ever: a wrong statement raises at once. Whoever gives up loses
nothing, because the lease expires and the job is followed again once the database answers. Pauses and limits
of all retries are in `gpubloom.traincard.retry`.
"""

import asyncio
import errno
import socket
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from gpubloom.traincard.retry import RetryPolicy, retry_async

Result = TypeVar("Result")

DATABASE_OUTAGE = RetryPolicy(first_pause=0.2, longest_pause=5.0, max_seconds=600.0)
_UNREACHABLE = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}


class DatabaseUnavailable(Exception):
    """The database did not answer before the retry policy gave up."""


async def persist(
    work: Callable[[], Awaitable[Result]],
    log: structlog.stdlib.BoundLogger,
    policy: RetryPolicy | None = None,
) -> Result:
    """Repeat database work while the database is away. DatabaseUnavailable: it stayed away."""

    async def wait(problem: Exception, pause: float) -> None:
        log.warning("the database does not answer, trying again", reason=type(problem).__name__)
        await asyncio.sleep(pause)

    try:
        return await retry_async(work, policy or DATABASE_OUTAGE, is_transient=_is_transient, wait=wait)
    except (SQLAlchemyError, OSError) as problem:
        if not is_outage(problem):
            raise
        raise DatabaseUnavailable(f"The database did not answer ({type(problem).__name__}).") from problem


def _is_transient(problem: Exception) -> bool:
    return isinstance(problem, SQLAlchemyError | OSError) and is_outage(problem)


def is_outage(problem: BaseException) -> bool:
    """Whether the database is away, as opposed to a wrong statement."""
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
    """SQLite reports a missing table under the same class as a locked file."""
    return getattr(problem, "sqlite_errorname", None) == "SQLITE_ERROR"
