"""Files that people brought: the columns of their rows, the room they take, who needs them, who reads them.

A worker prepares the files under a lease as in docs/jobs.md: whoever holds the token may write, and a token
that ran out may be replaced. Room is limited by file, by person and by the disk. A file is not deleted while
a job needs it: `app.py` gathers who may say so, in a sentence such as "The job X trains on it."
"""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, cast
from uuid import UUID

import anyio.to_thread
from fastapi import Depends, Request
from sqlalchemy import BigInteger, Double, ForeignKey, String, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from gpubloom.server.accounts.principal import CurrentPrincipal, Principal
from gpubloom.server.accounts.shares import CurrentShares
from gpubloom.server.clock import now
from gpubloom.server.problems import Conflict, TooLarge
from gpubloom.server.settings import Settings

GIGABYTE = 1_000_000_000
# Left free for the database, logs and checkpoints of what runs.
SPARE_BYTES = 1 * GIGABYTE
StoredKind = Literal["dataset", "model"]
FindUse = Callable[[AsyncSession, StoredKind, UUID], Awaitable[str | None]]


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


def gigabytes(size: float) -> str:
    """A size as people read it."""
    return f"{size / GIGABYTE:,.1f} GB" if size >= GIGABYTE / 10 else f"{size / 1e6:,.1f} MB"


async def require_room(session: AsyncSession, principal: Principal, settings: Settings, size: int) -> None:
    """Raises with a sentence when `size` bytes more cannot be taken."""
    largest = settings.max_upload_gb * GIGABYTE
    if size > largest:
        raise TooLarge(
            f"The file is {gigabytes(size)}, but this server accepts at most {gigabytes(largest)}. The "
            "operator can raise BLOOM_MAX_UPLOAD_GB."
        )
    kept = await _kept(session, principal.id)
    quota = settings.user_quota_gb * GIGABYTE
    if kept + size > quota:
        raise TooLarge(
            f"Your datasets and models use {gigabytes(kept)} of {gigabytes(quota)}, but {gigabytes(size)} "
            "more are needed. Delete a dataset or a model, or ask the operator to raise "
            "BLOOM_USER_QUOTA_GB.",
            code="quota_exceeded",
        )
    coming = 0
    for kind in KeepsFiles.__subclasses__():
        waiting = kind.status.in_(("uploading", "fetching"))
        coming += int(await session.scalar(select(func.sum(kind.size - kind.received)).where(waiting)) or 0)
    free = await anyio.to_thread.run_sync(free_bytes, settings.home)
    if coming + size > free - SPARE_BYTES:
        raise TooLarge(
            f"The server's disk has {gigabytes(max(0, free - SPARE_BYTES - coming))} left for uploads, "
            f"but {gigabytes(size)} are needed. Delete a dataset or a model, or ask the operator for "
            "more disk space.",
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


def _uses_of(request: Request) -> Sequence[FindUse]:
    return cast("Sequence[FindUse]", request.app.state.uses)


Uses = Annotated[Sequence[FindUse], Depends(_uses_of)]


async def require_unused(
    session: AsyncSession, uses: Sequence[FindUse], kind: StoredKind, row_id: UUID
) -> None:
    """Raises when something that has not ended needs it."""
    for find in uses:
        use = await find(session, kind, row_id)
        if use is not None:
            raise Conflict(
                f"{use} Cancel that job or wait until it ends, then delete the {kind}.", code=f"{kind}_in_use"
            )


def _reader_of(principal: CurrentPrincipal, shares: CurrentShares) -> AbstractAsyncContextManager[None]:
    return shares.readers.hold(principal.id)


# Waits for one of the processes that read files, on behalf of the person who asks.
Readers = Annotated[AbstractAsyncContextManager[None], Depends(_reader_of)]
