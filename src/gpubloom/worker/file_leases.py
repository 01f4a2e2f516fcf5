"""Claiming a dataset or a model that waits for a worker, and keeping the right to write about it.

The same rules as for jobs (docs/jobs.md): the token is the right, and every write carries it.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.clock import database_time
from gpubloom.server.models.tables import Model

LEASE = timedelta(seconds=20)
# A file that ended as many workers' attempts would end the next one too.
MOST_ATTEMPTS = 3

Kept = TypeVar("Kept", Dataset, Model)


async def claim(session: AsyncSession, table: type[Kept], status: str, worker: str) -> Kept | None:
    """What has waited longest in a status and nobody prepares."""
    chosen = (
        select(table.id)
        .where(
            table.status == status, or_(table.lease_expires.is_(None), table.lease_expires < database_time())
        )
        .order_by(table.updated_at, table.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    claimed: Kept | None = await session.scalar(
        update(table)
        .where(table.id == chosen)
        .values(
            lease_token=uuid4(), lease_expires=database_time(LEASE), worker=worker, attempt=table.attempt + 1
        )
        .returning(table)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return claimed


async def renew(
    session: AsyncSession, table: type[Kept], row_id: UUID, token: UUID, seen: dict[str, Any]
) -> bool:
    """Keep the lease and tell how far it is; says whether it is still held."""
    renewed = await session.execute(
        update(table)
        .where(table.id == row_id, table.lease_token == token)
        .values(lease_expires=database_time(LEASE), **seen)
        .returning(table.id)
        .execution_options(synchronize_session=False)
    )
    return renewed.one_or_none() is not None


async def settle(
    session: AsyncSession, table: type[Kept], row_id: UUID, token: UUID, outcome: dict[str, Any]
) -> bool:
    """Write what came of it and give the lease up; nothing is written when it was lost."""
    freed = {"lease_token": None, "lease_expires": None, "worker": None}
    settled = await session.execute(
        update(table)
        .where(table.id == row_id, table.lease_token == token)
        .values(**outcome, **freed)
        .returning(table.id)
        .execution_options(synchronize_session=False)
    )
    return settled.one_or_none() is not None


async def holders(session: AsyncSession, table: type[Kept]) -> set[str]:
    """The workers that hold leases."""
    names = await session.scalars(
        select(table.worker).where(table.lease_expires > database_time()).distinct()
    )
    return {name for name in names if name is not None}


async def expire(session: AsyncSession, table: type[Kept], workers: Collection[str]) -> None:
    """End the leases of workers that are known to be gone."""
    await session.execute(
        update(table)
        .where(table.worker.in_(workers))
        .values(lease_expires=database_time())
        .execution_options(synchronize_session=False)
    )
