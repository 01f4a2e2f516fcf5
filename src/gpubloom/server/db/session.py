"""Database sessions as FastAPI dependencies; a handler never commits by itself."""

from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.db.database import Database


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
