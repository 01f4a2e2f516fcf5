"""Whether this server can do its work."""

from typing import Literal

from fastapi import APIRouter
from sqlalchemy import text

import gpubloom
from gpubloom.server.db.session import CurrentDatabase
from gpubloom.server.schema import Schema

router = APIRouter(tags=["health"])


class Health(Schema):
    status: Literal["ok"] = "ok"
    version: str = gpubloom.__version__
    database: str


@router.get("/health")
async def read_health(database: CurrentDatabase) -> Health:
    """Answers when the server runs and its database answers too."""
    async with database.read() as session:
        await session.execute(text("SELECT 1"))
    return Health(database=database.kind)
