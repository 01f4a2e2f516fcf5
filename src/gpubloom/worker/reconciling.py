"""Looks at the start and every few minutes for rented machines that no job owns, and ends them."""

import asyncio

import structlog
from sqlalchemy.exc import SQLAlchemyError

from gpubloom.server.db.database import Database
from gpubloom.server.rentals.reconciling import reconcile
from gpubloom.server.settings import Settings

log = structlog.get_logger("bloom.worker")

EVERY_SECONDS = 300.0


async def keep_reconciling(settings: Settings, database: Database, stopping: asyncio.Event) -> None:
    """Until told to stop. Several workers may do it at once: ending a machine twice is ending it once."""
    while not stopping.is_set():
        try:
            await reconcile(database, settings)
        except (SQLAlchemyError, OSError) as problem:
            log.warning("looking for forgotten machines waits", reason=type(problem).__name__)
        except Exception as problem:
            # A service's library may raise anything; it is tried again.
            log.error("looking for forgotten machines failed", exc_info=problem)
        try:
            await asyncio.wait_for(stopping.wait(), EVERY_SECONDS)
        except TimeoutError:
            continue
