"""What datasets and models have in common: somebody's files, and a worker that prepares them.

The lease is as in docs/jobs.md: whoever holds the token may write, and a token that ran out may be replaced.

Whether there is room for what somebody wants to bring: by file, by person, on the disk.
"""

import shutil
from datetime import datetime
from pathlib import Path
from uuid import UUID

import anyio.to_thread
from sqlalchemy import BigInteger, Double, ForeignKey, String, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.clock import now
from gpubloom.server.problems import TooLarge
from gpubloom.server.settings import Settings


class KeepsFiles:
    """A row that stands for files on this machine."""

    @declared_attr
    def user_id(cls) -> Mapped[UUID]:  # noqa: N805 - SQLAlchemy gives the class
        return mapped_column(ForeignKey("users.id", ondelete="CASCADE"))

    name: Mapped[str]
    source: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16))
    # Bytes: as announced, and as far as they have come.
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    received: Mapped[int] = mapped_column(BigInteger, default=0)
    # From 0 to 1, of what the status says.
    progress: Mapped[float | None] = mapped_column(Double)
    problem: Mapped[str | None]

    lease_token: Mapped[UUID | None]
    lease_expires: Mapped[datetime | None]
    worker: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(default=0)

    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)


GIGABYTE = 1_000_000_000
# Left free for the database, logs and checkpoints of what runs.
SPARE_BYTES = 1 * GIGABYTE


def gigabytes(size: float) -> str:
    """A size as people read it."""
    return f"{size / GIGABYTE:,.1f} GB" if size >= GIGABYTE / 10 else f"{size / 1e6:,.1f} MB"


async def require_room(session: AsyncSession, principal: Principal, settings: Settings, size: int) -> None:
    """Raises with a sentence when `size` bytes more cannot be taken."""
    largest = settings.max_upload_gb * GIGABYTE
    if size > largest:
        raise TooLarge(
            f"This is {gigabytes(size)}; this server takes at most {gigabytes(largest)} at once. Its "
            "operator can raise BLOOM_MAX_UPLOAD_GB."
        )
    kept = await _kept(session, principal.id)
    quota = settings.user_quota_gb * GIGABYTE
    if kept + size > quota:
        raise TooLarge(
            f"Your datasets and models take {gigabytes(kept)} of {gigabytes(quota)}, and this needs "
            f"{gigabytes(size)} more. Delete some, or ask the operator to raise BLOOM_USER_QUOTA_GB.",
            code="quota_exceeded",
        )
    coming = 0
    for kind in KeepsFiles.__subclasses__():
        waiting = kind.status.in_(("uploading", "fetching"))
        coming += int(await session.scalar(select(func.sum(kind.size - kind.received)).where(waiting)) or 0)
    free = await anyio.to_thread.run_sync(free_bytes, settings.home)
    if coming + size > free - SPARE_BYTES:
        raise TooLarge(
            f"The disk of this server has {gigabytes(max(0, free - SPARE_BYTES - coming))} left for "
            f"uploads, and this needs {gigabytes(size)}. Delete something, or ask the operator for "
            "more room.",
            code="disk_full",
        )


async def room_left(session: AsyncSession, settings: Settings, user_id: UUID) -> int:
    """How many bytes more a person may keep here."""
    return int(settings.user_quota_gb * GIGABYTE) - await _kept(session, user_id)


async def _kept(session: AsyncSession, user_id: UUID) -> int:
    total = 0
    for kind in KeepsFiles.__subclasses__():
        # The folders of others take no room of ours.
        owned = (kind.user_id == user_id, kind.source != "folder")
        total += int(await session.scalar(select(func.sum(kind.size)).where(*owned)) or 0)
    return total


def free_bytes(folder: Path) -> int:
    """How much more fits on the disk of a folder."""
    return shutil.disk_usage(folder).free
