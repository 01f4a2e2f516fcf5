"""Files that people brought: the columns of their rows, the room they take, who needs them, who reads them.

A worker prepares the files under a lease as in docs/jobs.md: whoever holds the token may write, and a token
that ran out may be replaced. Room is limited by file, by person and by the disk. A file is not deleted while
a job needs it: `app.py` gathers who may say so, in a sentence such as "The job X trains on it."

The quota of a person also counts the files of their jobs: what runs write, their checkpoints and models, and
what rented machines upload. The worker of a machine measures them (`worker/job_storage.py`); no request walks
the disk.
"""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
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
from gpubloom.server.db.base import Table
from gpubloom.server.db.clock import read_database_time
from gpubloom.server.problems import Conflict, Problem, TooLarge
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


class JobStorage(Table):
    """How much the run directory of a job takes on its machine, as measured last."""

    __tablename__ = "job_storage"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("training_jobs.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    # Logs, metrics, and the files that a script wrote.
    run_bytes: Mapped[int] = mapped_column(BigInteger)
    checkpoint_bytes: Mapped[int] = mapped_column(BigInteger)
    # Finished models and exports.
    model_bytes: Mapped[int] = mapped_column(BigInteger)
    # By the database's clock.
    measured_at: Mapped[datetime]


@dataclass(frozen=True)
class Usage:
    """The bytes that a person's files take, by kind."""

    datasets: int = 0
    models: int = 0
    runs: int = 0
    checkpoints: int = 0
    # Models that jobs trained or exported.
    trained_models: int = 0

    @property
    def total(self) -> int:
        return self.datasets + self.models + self.runs + self.checkpoints + self.trained_models


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
    used = (await read_usage(session, principal.id)).total
    quota = settings.user_quota_gb * GIGABYTE
    if used + size > quota:
        raise quota_exceeded(used, settings, f"{gigabytes(size)} more are needed")
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


def quota_exceeded(used: int, settings: Settings, need: str) -> TooLarge:
    """What a person is told when their files take too much; `need` says what for."""
    quota = gigabytes(settings.user_quota_gb * GIGABYTE)
    return TooLarge(
        f"Your datasets, models and jobs use {gigabytes(used)} of {quota}, but {need}. Delete a dataset, a "
        "model or a job, or ask the operator to raise BLOOM_USER_QUOTA_GB.",
        code="quota_exceeded",
    )


async def count_files(session: AsyncSession, job_id: UUID, user_id: UUID, size: int) -> None:
    """Count `size` bytes of a job's run directory, besides its checkpoints and models."""
    moment = await read_database_time(session)
    stored = await session.get(JobStorage, job_id)
    if stored is None:
        stored = JobStorage(job_id=job_id, user_id=user_id, checkpoint_bytes=0, model_bytes=0)
        session.add(stored)
    stored.run_bytes, stored.measured_at = size, moment


async def room_left(session: AsyncSession, settings: Settings, user_id: UUID) -> int:
    """How many bytes more a person may keep here; negative when they keep more than they may."""
    return int(settings.user_quota_gb * GIGABYTE) - (await read_usage(session, user_id)).total


async def room_for(session: AsyncSession, settings: Settings, user_id: UUID, job_id: UUID) -> int:
    """How many bytes the run directory of a job may hold in all, with what it holds already."""
    own = await session.get(JobStorage, job_id)
    held = 0 if own is None else own.run_bytes + own.checkpoint_bytes + own.model_bytes
    return max(0, await room_left(session, settings, user_id) + held)


async def read_usage(session: AsyncSession, user_id: UUID) -> Usage:
    """The sizes that are stored: nothing here looks at the disk."""
    brought = {"datasets": 0, "models": 0}
    for kind in KeepsFiles.__subclasses__():
        # The folders of others take no room of ours.
        owned = (kind.user_id == user_id, kind.source != "folder")
        size = await session.scalar(select(func.sum(kind.size)).where(*owned))
        brought[kind.__tablename__] = int(size or 0)  # type: ignore[attr-defined]
    of_jobs = (
        await session.execute(
            select(
                func.sum(JobStorage.run_bytes),
                func.sum(JobStorage.checkpoint_bytes),
                func.sum(JobStorage.model_bytes),
            ).where(JobStorage.user_id == user_id)
        )
    ).one()
    runs, checkpoints, trained = (int(size or 0) for size in of_jobs)
    return Usage(**brought, runs=runs, checkpoints=checkpoints, trained_models=trained)


class NoRoom(Problem):
    """Whoever sends a batch keeps it and sends it again: nothing is lost while somebody makes room."""

    status, code = 507, "no_room"


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
