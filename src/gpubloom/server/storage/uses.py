"""Who still needs a dataset or a model: what stands above says so, and then it is not deleted.

`app.py` gathers the answers; a use is a sentence such as "The job X trains on it."
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal, cast
from uuid import UUID

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.problems import Conflict

Kind = Literal["dataset", "model"]
FindUse = Callable[[AsyncSession, Kind, UUID], Awaitable[str | None]]


def _uses_of(request: Request) -> Sequence[FindUse]:
    return cast("Sequence[FindUse]", request.app.state.uses)


Uses = Annotated[Sequence[FindUse], Depends(_uses_of)]


async def require_unused(session: AsyncSession, uses: Sequence[FindUse], kind: Kind, row_id: UUID) -> None:
    """Raises when something that has not ended needs it."""
    for find in uses:
        use = await find(session, kind, row_id)
        if use is not None:
            raise Conflict(f"{use} Cancel it or wait for its end, then delete this.", code=f"{kind}_in_use")
