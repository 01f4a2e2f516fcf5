"""Health of this server and its workers."""

from typing import Literal

from fastapi import APIRouter
from sqlalchemy import select

import gpubloom
from gpubloom.server.db.clock import database_time
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.jobs.launch import WORKER_SEEN_WITHIN
from gpubloom.server.jobs.tables import Worker
from gpubloom.server.schema import Schema

router = APIRouter(tags=["health"])


class HealthProblem(Schema):
    """Why a worker does not start jobs. Programs can rely on `code`. The machine's name is left out."""

    code: str
    message: str


class Health(Schema):
    """`degraded`: the server answers, but jobs wait because of `problems`."""

    status: Literal["ok", "degraded"] = "ok"
    version: str = gpubloom.__version__
    database: str
    problems: list[HealthProblem]


@router.get("/health")
async def read_health(database: CurrentDatabase) -> Health:
    """Answers when the server runs and the database is reachable."""
    async with database.read() as session:
        faults = await session.execute(
            select(Worker.fault_code, Worker.fault_message)
            .where(Worker.fault_code.is_not(None), Worker.last_seen_at > database_time(-WORKER_SEEN_WITHIN))
            .distinct()
            .order_by(Worker.fault_code)
        )
        problems = [HealthProblem(code=code, message=message or code) for code, message in faults if code]
    return Health(status="degraded" if problems else "ok", database=database.kind, problems=problems)
