"""The database's clock, as an SQL expression.

Machines disagree about the time. Whatever one of them writes and another one compares, the end of a lease or
a sign of life, is written and compared by the one clock that they share. SQLite has that of its machine,
which every process that can open the file shares.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Double, literal, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gpubloom.server.db.base import UtcDateTime

_NONE = timedelta()


class database_time(FunctionElement[datetime]):  # noqa: N801 - used like a function of SQL
    """The current time by the database's clock, later by `offset`."""

    inherit_cache = True
    type = UtcDateTime()

    def __init__(self, offset: timedelta = _NONE) -> None:
        super().__init__(literal(offset.total_seconds(), Double))


@compiles(database_time, "postgresql")
def _on_postgresql(element: database_time, compiler: SQLCompiler, **options: Any) -> str:
    # Not now(), which is when the transaction began: it may have waited for a lock since.
    seconds = compiler.process(element.clauses, **options)
    return f"(clock_timestamp() + make_interval(secs => {seconds}))"


@compiles(database_time, "sqlite")
def _on_sqlite(element: database_time, compiler: SQLCompiler, **options: Any) -> str:
    # As SQLAlchemy stores times: text with six digits behind the seconds.
    seconds = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', {seconds} || ' seconds')"


async def read_database_time(session: AsyncSession) -> datetime:
    """The current time by the database's clock."""
    moment: datetime | None = await session.scalar(select(database_time()))
    assert moment is not None
    return moment


class seconds_between(FunctionElement[float]):  # noqa: N801
    """The seconds from one time to a later one."""

    inherit_cache = True
    type = Double()


@compiles(seconds_between, "postgresql")
def _seconds_on_postgresql(element: seconds_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"extract(epoch from ({end}) - ({start}))"


@compiles(seconds_between, "sqlite")
def _seconds_on_sqlite(element: seconds_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"((julianday({end}) - julianday({start})) * 86400.0)"
