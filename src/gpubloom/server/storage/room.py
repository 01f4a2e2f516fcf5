"""Whether there is room for what somebody wants to bring: by file, by person, on the disk."""

import shutil
from pathlib import Path

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
    kept = coming = 0
    for kind in KeepsFiles.__subclasses__():
        # The folders of others take no room of ours.
        ours = (kind.source != "folder", kind.status != "failed")
        kept += (
            await session.scalar(select(func.sum(kind.size)).where(kind.user_id == principal.id, *ours)) or 0
        )
        waiting = kind.status.in_(("uploading", "fetching"))
        coming += await session.scalar(select(func.sum(kind.size - kind.received)).where(waiting, *ours)) or 0
    quota = settings.user_quota_gb * GIGABYTE
    if kept + size > quota:
        raise TooLarge(
            f"Your datasets and models take {gigabytes(kept)} of {gigabytes(quota)}, and this needs "
            f"{gigabytes(size)} more. Delete some, or ask the operator to raise BLOOM_USER_QUOTA_GB.",
            code="quota_exceeded",
        )
    free = await anyio.to_thread.run_sync(free_bytes, settings.home)
    if int(coming) + size > free - SPARE_BYTES:
        raise TooLarge(
            f"The disk of this server has {gigabytes(max(0, free - SPARE_BYTES - int(coming)))} left for "
            f"uploads, and this needs {gigabytes(size)}. Delete something, or ask the operator for "
            "more room.",
            code="disk_full",
        )


def free_bytes(folder: Path) -> int:
    """How much more fits on the disk of a folder."""
    return shutil.disk_usage(folder).free
