"""The HTTP routes of the storage bucket: an admin sets it up, and every step of its test is shown."""

from datetime import datetime
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import APIRouter
from pydantic import Field, SecretStr
from sqlalchemy import exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import AdminPrincipal, CurrentSettings
from gpubloom.server.accounts.reauthentication import FreshAdminPrincipal
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.rentals.tables import BILLED, Rental
from gpubloom.server.schema import Line, Schema, StorableSecret
from gpubloom.server.security.rates import Rate
from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import (
    RunBucket,
    open_bucket,
    read_bucket,
    seal_secret,
    why_no_server_store,
)
from gpubloom.storage import StorageSettings
from gpubloom.storage.bucket_check import StepName, check_bucket
from gpubloom.storage.guides import GUIDES
from gpubloom.storage.store import StorageKind

router = APIRouter(prefix="/storage-bucket", tags=["storage"])

# Each is a handful of calls to somebody else's server.
_CHECKS = Rate("bucket-checks", limit=30, seconds=15 * 60)

_Short = Annotated[Line, Field(max_length=300)]


class BucketIn(Schema):
    """Where the bucket is, and a key that may read, write, list and delete in it."""

    kind: StorageKind = Field(
        "s3", description="s3 for every S3-compatible service, gcs for Google Cloud Storage, azure."
    )
    bucket: Annotated[Line, Field(min_length=1, max_length=200)]
    access_key: _Short = Field("", description="At Azure the storage account; at Google empty.")
    secret_key: Annotated[SecretStr, Field(min_length=1, max_length=8_000), StorableSecret]
    endpoint: _Short = Field(
        "",
        description="Address of the service without the bucket. If empty: that of Amazon, Google or Azure.",
    )
    region: _Short = "us-east-1"
    prefix: _Short = Field("", description="A folder in the bucket.")


class StepOut(Schema):
    """A step of the test. `ok` is null if an earlier step failed."""

    name: StepName
    title: str
    ok: bool | None
    problem: str | None


class BucketTest(Schema):
    """The result of a live test. A new bucket is saved only if every step succeeded."""

    ok: bool
    steps: list[StepOut]


class GuideOut(Schema):
    name: str
    title: str
    page: str
    endpoint: str
    region: str
    steps: list[str]


class BucketOut(Schema):
    """The bucket of rented jobs. The secret key is never returned."""

    source: Literal["environment", "settings"] | None = Field(
        description="Who set the bucket up: the operator with BLOOM_STORAGE_*, or an admin. None: nobody."
    )
    kind: StorageKind | None
    bucket: str | None
    access_key: str | None
    endpoint: str | None
    region: str | None
    prefix: str | None
    set_at: datetime | None
    server_store: bool = Field(description="Whether this server itself can be the store.")
    server_store_reason: str | None
    guides: list[GuideOut]


@router.get("")
async def read_storage_bucket(
    principal: AdminPrincipal, session: ReadSession, settings: CurrentSettings
) -> BucketOut:
    """Return the storage bucket of rented jobs, and how to create one."""
    row = await session.get(RunBucket, 1)
    return _out(settings, row)


@router.put("")
async def set_storage_bucket(
    body: BucketIn, principal: FreshAdminPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> BucketTest:
    """Test a bucket and save it if every step succeeds. The next job uses it, without a restart."""
    _require_free(settings)
    await _CHECKS.count(database, str(principal.id))
    secret = body.secret_key.get_secret_value()
    bucket = StorageSettings(
        body.bucket, body.access_key, secret, body.endpoint, body.region, body.prefix, body.kind
    )
    test = await _test(settings, bucket)
    if not test.ok:
        return test
    sealed = await anyio.to_thread.run_sync(seal_secret, settings, secret)
    async with database.write() as session:
        before = await session.get(RunBucket, 1)
        if before is not None and (before.bucket, before.endpoint, before.prefix, before.kind) != (
            body.bucket,
            body.endpoint,
            body.prefix,
            body.kind,
        ):
            await _require_unused(session)
        await session.merge(
            RunBucket(
                id=1,
                kind=body.kind,
                bucket=body.bucket,
                access_key=body.access_key,
                sealed=sealed,
                endpoint=body.endpoint,
                region=body.region,
                prefix=body.prefix,
                set_by=principal.id,
                set_at=now(),
            )
        )
        record(session, principal.actor, "storage_bucket.stored", "storage_bucket", bucket=body.bucket)
    return test


@router.post("/check")
async def check_storage_bucket(
    principal: AdminPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> BucketTest:
    """Test the bucket in use."""
    async with database.read() as session:
        bucket = await read_bucket(session, settings)
    if bucket is None:
        raise NotFound("No storage bucket is set up.", code="no_store")
    await _CHECKS.count(database, str(principal.id))
    return await _test(settings, bucket)


@router.delete("", status_code=204)
async def remove_storage_bucket(
    principal: FreshAdminPrincipal, session: WriteSession, settings: CurrentSettings
) -> None:
    """Forget the bucket. Nothing is deleted in it. Not possible while rented jobs use it."""
    _require_free(settings)
    row = await session.get(RunBucket, 1)
    if row is None:
        raise NotFound("No storage bucket is set up.", code="no_store")
    await _require_unused(session)
    await session.delete(row)
    record(session, principal.actor, "storage_bucket.deleted", "storage_bucket")


def _require_free(settings: Settings) -> None:
    if settings.storage is not None:
        raise Conflict(
            "The operator sets the storage bucket with BLOOM_STORAGE_*. Change it there.",
            code="set_by_operator",
        )


async def _require_unused(session: AsyncSession) -> None:
    used = exists().where(Rental.state.in_(BILLED), Rental.store == "bucket")
    if await session.scalar(select(used)):
        raise Conflict(
            "Rented machines upload to this bucket now. Wait until their jobs end, or cancel them.",
            code="store_in_use",
        )


async def _test(settings: Settings, bucket: StorageSettings) -> BucketTest:
    steps = await anyio.to_thread.run_sync(check_bucket, lambda: open_bucket(settings, bucket))
    return BucketTest(
        ok=all(step.ok for step in steps), steps=[StepOut.model_validate(step) for step in steps]
    )


def _out(settings: Settings, row: RunBucket | None) -> BucketOut:
    reason = why_no_server_store(settings)
    given = settings.storage
    guides = [GuideOut.model_validate({**vars(guide), "steps": list(guide.steps)}) for guide in GUIDES]
    about = {"server_store": reason is None, "server_store_reason": reason, "guides": guides}
    if given is not None:
        fields = {name: getattr(given, name) for name in ("kind", "bucket", "endpoint", "region", "prefix")}
        return BucketOut(source="environment", access_key=given.key, set_at=None, **fields, **about)
    names = ("kind", "bucket", "access_key", "endpoint", "region", "prefix", "set_at")
    fields = {name: None if row is None else getattr(row, name) for name in names}
    return BucketOut(source=None if row is None else "settings", **fields, **about)
