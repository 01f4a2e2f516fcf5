"""Database work of whoever follows a job: done again while the database is away, because the run goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

Result = TypeVar("Result")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


async def persist(work: Callable[[], Awaitable[Result]], log: structlog.stdlib.BoundLogger) -> Result:
    """Do it again and again while the database is away; a statement that is wrong raises."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await work()
        except (DBAPIError, SQLAlchemyError, OSError) as problem:
            if isinstance(problem, DBAPIError) and not _passes(problem):
                raise
            log.warning("the database does not answer, trying again", reason=type(problem).__name__)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _passes(problem: DBAPIError) -> bool:
    """Whether it is the database that is away, not the statement that is wrong."""
    return problem.connection_invalidated or type(problem).__name__ in {"OperationalError", "InterfaceError"}
