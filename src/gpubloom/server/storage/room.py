"""Whether there is room for what somebody wants to bring: by file, by person, on the disk."""

import shutil
from pathlib import Path
from uuid import UUID

import anyio.to_thread
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.problems import TooLarge
from gpubloom.server.settings import Settings
from gpubloom.server.storage.tables import KeepsFiles

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
