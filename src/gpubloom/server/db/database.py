"""Opens the database: `write()` for one serialised transaction, `read()` for a plain snapshot.

SQLite has one writer at a time. A transaction that begins as a reader and writes later can fail at once
with "database is locked", so writing ones say so from the start (BEGIN IMMEDIATE) and wait their turn;
readers use a second engine and never take the lock. On PostgreSQL the same two names are ordinary
transactions, the reading one declared read-only and of one moment.

Handlers get their session as a FastAPI dependency and never commit by themselves.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from sqlalchemy import event, make_url
from sqlalchemy.engine import URL, Connection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from gpubloom.errors import InputError

# How long a writer waits for the one before it. Transactions take milliseconds: no network call and no
# password hashing happens inside one.
SQLITE_BUSY_SECONDS = 15
# For a process that froze, or whose machine is gone, within a transaction: PostgreSQL would keep its locks
# until the connection counts as broken, which takes hours.
POSTGRESQL_IDLE_SECONDS = 60
# Where a session keeps the folder of the server's key; the audit log signs with it.
HOME = "home"


class Database:
    """The two engines and their sessions. `home`: the folder of the key that signs the audit log."""

    def __init__(self, address: str, home: Path | None = None) -> None:
        self.url: URL = make_url(address)
        self.kind = self.url.get_backend_name()
        if self.kind == "sqlite":
            if self.url.database:
                Path(self.url.database).parent.mkdir(parents=True, exist_ok=True)
            self._writer = _sqlite_engine(self.url, begin="BEGIN IMMEDIATE", read_only=False)
            self._reader = _sqlite_engine(self.url, begin="BEGIN", read_only=True)
        elif self.kind == "postgresql":
            self._writer = _postgresql_engine(self.url)
            self._reader = self._writer.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        else:
            raise InputError(
                "invalid_database_url",
                f"BLOOM_DATABASE_URL uses {self.kind!r}, which is not supported. Use "
                "sqlite+aiosqlite:///file or postgresql+psycopg://host/name.",
            )
        self._write_sessions = async_sessionmaker(self._writer, expire_on_commit=False, info={HOME: home})
        self._read_sessions = async_sessionmaker(self._reader, expire_on_commit=False)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """One transaction: committed when the block ends, rolled back when it raises."""
        async with self._write_sessions() as session, session.begin():
            yield session

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """One consistent snapshot that cannot write."""
        async with self._read_sessions() as session, session.begin():
            yield session

    async def close(self) -> None:
        """Give all connections back."""
        await self._writer.dispose()
        if self._reader.sync_engine is not self._writer.sync_engine:
            await self._reader.dispose()


def _postgresql_engine(url: URL) -> AsyncEngine:
    engine = create_async_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=10)

    @event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{POSTGRESQL_IDLE_SECONDS}s'")
        cursor.close()
        connection.commit()

    return engine


class _RollingBackConnection(sqlite3.Connection):
    """Gives its locks back when it is closed, whoever still holds a cursor.

    SQLite puts the closing off while a statement is under way. One that was cancelled before its rows were
    fetched stays so as long as somebody keeps the traceback, and every other writer would be locked out.
    """

    def close(self) -> None:
        if self.in_transaction:
            self.rollback()
        super().close()


def _sqlite_engine(url: URL, *, begin: str, read_only: bool) -> AsyncEngine:
    engine = create_async_engine(
        url, connect_args={"timeout": SQLITE_BUSY_SECONDS, "factory": _RollingBackConnection}
    )

    @event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, record: object) -> None:
        # The driver must not open transactions by itself; `_begin` below does.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            f"query_only={'ON' if read_only else 'OFF'}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def database_of(request: Request) -> Database:
    """The app's database."""
    return cast("Database", request.app.state.database)


async def _read_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with database_of(request).read() as session:
        yield session


async def _write_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with database_of(request).write() as session:
        yield session


# `scope="function"`: the transaction ends before the response leaves, so that what a client was told has
# happened has been committed, and a slow reader of the response holds no transaction open.
ReadSession = Annotated[AsyncSession, Depends(_read_session, scope="function")]
WriteSession = Annotated[AsyncSession, Depends(_write_session, scope="function")]
CurrentDatabase = Annotated[Database, Depends(database_of)]
