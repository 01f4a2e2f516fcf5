"""Files that jobs on rented machines made, kept in the bucket after the end of the job.

The worker stores them when a job has ended, and removes them when their time is over (`store_artifacts`,
`remove_expired`). Their owner asks for an address that works for a while without a key.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID, uuid4

import anyio.to_thread
import structlog
from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database, ReadSession, WriteSession
from gpubloom.server.jobs.files import MOST_ARTIFACTS, FoundFile, artifacts, model_files, run_directory
from gpubloom.server.jobs.service import get_job
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.rentals.tables import StoredArtifact
from gpubloom.server.schema import Number, Schema
from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import open_bucket, read_bucket
from gpubloom.storage import Store
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.run_store import LONGEST_LIFE_SECONDS

log = structlog.get_logger("bloom")

# So many files are removed in one round; the next one follows within minutes.
_MOST_EXPIRED = 1_000


class StoredArtifactOut(Schema):
    """A file in the bucket. `kept_until`: when it is removed."""

    id: UUID
    path: str
    size: int
    sha256: str
    stored_at: datetime
    kept_until: datetime


class StoredArtifacts(Schema):
    items: list[StoredArtifactOut]


class AddressIn(Schema):
    life_seconds: Annotated[Number, Field(ge=60, le=LONGEST_LIFE_SECONDS)] = Field(
        3600, description="How long the address works, in seconds: one minute to seven days."
    )


class AddressOut(Schema):
    """Whoever has the address can download the file until it expires."""

    address: str
    expires_at: datetime


router = APIRouter(prefix="/jobs/{job_id}/stored-artifacts", tags=["jobs"])


@router.get("")
async def list_stored_artifacts(
    job_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> StoredArtifacts:
    """List the files that the job made on a rented machine and that are kept in the bucket."""
    await get_job(session, principal, job_id)
    rows = await session.scalars(
        select(StoredArtifact).where(StoredArtifact.job_id == job_id).order_by(StoredArtifact.path)
    )
    kept = timedelta(days=settings.artifact_retention_days)
    return StoredArtifacts(
        items=[
            StoredArtifactOut(
                id=row.id,
                path=row.path,
                size=row.size,
                sha256=row.sha256,
                stored_at=row.stored_at,
                kept_until=row.stored_at + kept,
            )
            for row in rows
        ]
    )


@router.post("/{artifact_id}/address")
async def create_address(
    job_id: UUID,
    artifact_id: UUID,
    body: AddressIn,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> AddressOut:
    """Create an address of one file that works without signing in, until it expires."""
    job, project = await get_job(session, principal, job_id)
    row = await session.scalar(
        select(StoredArtifact).where(StoredArtifact.id == artifact_id, StoredArtifact.job_id == job.id)
    )
    if row is None:
        raise NotFound("This file is no longer kept in the bucket.", code="file_not_found")
    bucket = await read_bucket(session, settings)
    if bucket is None:
        raise Conflict(
            "The storage bucket is no longer set up. An admin sets it up again under Providers.",
            code="no_store",
        )
    at, name = now(), JobLayout(str(job.id), 1).artifact(row.sha256, row.path)
    # Signed here, without a call to the bucket; the library takes a moment to import.
    store = await anyio.to_thread.run_sync(open_bucket, settings, bucket)
    [address] = store.addresses("GET", [name], body.life_seconds)
    record(
        session,
        principal.actor,
        "artifact.address_created",
        f"training_job:{job.id}",
        project.id,
        file=row.path,
        life_seconds=int(body.life_seconds),
    )
    return AddressOut(address=address, expires_at=at + timedelta(seconds=body.life_seconds))


async def store_artifacts(database: Database, settings: Settings, store: Store, job: TrainingJob) -> int:
    """Store what an ended job made, in place of what an earlier attempt made; returns how many files.

    StorageError: the bucket is away; the files are still on the server.
    """
    if settings.artifact_retention_days == 0:
        return 0
    layout = JobLayout(str(job.id), 1)
    stored = await anyio.to_thread.run_sync(_upload, settings, store, layout, job)
    async with database.write() as session:
        is_deleted = await session.get(TrainingJob, job.id) is None
        if not is_deleted:
            await session.execute(delete(StoredArtifact).where(StoredArtifact.job_id == job.id))
            at = now()
            session.add_all(
                StoredArtifact(
                    id=uuid4(), job_id=job.id, path=file.name, size=file.size, sha256=digest, stored_at=at
                )
                for file, digest in stored
            )
    if is_deleted:
        # Deleted while it was uploaded: its folder in the bucket may have been emptied before that.
        await anyio.to_thread.run_sync(store.delete_folder, layout.artifacts)
        return 0
    return len(stored)


def _upload(
    settings: Settings, store: Store, layout: JobLayout, job: TrainingJob
) -> list[tuple[FoundFile, str]]:
    found = (
        artifacts(run_directory(settings, job.id))
        if job.kind == "script"
        else model_files(settings, job.id)[:MOST_ARTIFACTS]
    )
    there = set(store.sizes(layout.artifacts))
    stored: list[tuple[FoundFile, str]] = []
    wanted: set[str] = set()
    for file in found:
        with file.open() as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            name = layout.artifact(digest, file.name)
            if name not in there | wanted:
                content.seek(0)
                store.put(name, content)
        wanted.add(name)
        stored.append((file, digest))
    store.delete(sorted(there - wanted))
    return stored


async def remove_expired(database: Database, settings: Settings) -> int:
    """Remove files whose time is over; returns how many. StorageError: the bucket is away, try later."""
    before = now() - timedelta(days=settings.artifact_retention_days)
    async with database.read() as session:
        rows = await _expired(session, before)
        bucket = await read_bucket(session, settings)
    if not rows or bucket is None:
        return 0
    store = await anyio.to_thread.run_sync(open_bucket, settings, bucket)
    names = [JobLayout(str(row.job_id), 1).artifact(row.sha256, row.path) for row in rows]
    async with database.read() as session:
        # Two files of one content are one object.
        alive = await _alive(session, rows, before)
    await anyio.to_thread.run_sync(store.delete, [name for name in dict.fromkeys(names) if name not in alive])
    async with database.write() as session:
        gone = await session.execute(
            delete(StoredArtifact)
            .where(StoredArtifact.id.in_([row.id for row in rows]))
            .returning(StoredArtifact.job_id)
        )
        jobs = [job_id for (job_id,) in gone]
        for job_id in dict.fromkeys(jobs):
            record(session, SYSTEM, "artifacts.expired", f"training_job:{job_id}", files=jobs.count(job_id))
    log.info("removed expired artifacts from the bucket", files=len(jobs))
    return len(jobs)


async def _expired(session: AsyncSession, before: datetime) -> Sequence[StoredArtifact]:
    found = await session.scalars(
        select(StoredArtifact)
        .where(StoredArtifact.stored_at <= before)
        .order_by(StoredArtifact.stored_at)
        .limit(_MOST_EXPIRED)
    )
    return found.all()


async def _alive(session: AsyncSession, rows: Sequence[StoredArtifact], before: datetime) -> set[str]:
    found = await session.scalars(
        select(StoredArtifact).where(
            StoredArtifact.job_id.in_({row.job_id for row in rows}), StoredArtifact.stored_at > before
        )
    )
    return {JobLayout(str(row.job_id), 1).artifact(row.sha256, row.path) for row in found}
