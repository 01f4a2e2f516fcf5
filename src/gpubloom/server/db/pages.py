"""Lists that are read a page at a time, with words to look for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query
from sqlalchemy import Select, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from gpubloom.server.db.base import Table
from gpubloom.server.schema import Storable

Row = TypeVar("Row", bound=Table)


@dataclass(frozen=True)
class Page:
    search: str
    limit: int
    offset: int


def _page_query(
    search: Annotated[str, Query(max_length=120), Storable] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Page:
    return Page(search.strip(), limit, offset)


PageQuery = Annotated[Page, Depends(_page_query)]


async def read_page(
    session: AsyncSession,
    statement: Select[Row],
    page: Page,
    *,
    searched: Sequence[InstrumentedAttribute[str] | InstrumentedAttribute[str | None]],
) -> tuple[list[Row], int]:
    """The rows of a page in the statement's order, and how many there are on all pages."""
    if page.search:
        found = [column.icontains(page.search, autoescape=True) for column in searched]
        statement = statement.where(or_(*found))
    total = await session.scalar(select(func.count()).select_from(statement.order_by(None).subquery()))
    rows = await session.scalars(statement.limit(page.limit).offset(page.offset))
    return list(rows), total or 0
