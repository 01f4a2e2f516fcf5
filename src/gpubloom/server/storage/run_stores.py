"""Where jobs on rented machines keep their files: the bucket that was set up, and this server itself.

The operator sets a bucket up with BLOOM_STORAGE_*, or an admin in the web app, without a restart (one row,
its secret sealed). What the environment says counts first.
"""

import re
from datetime import datetime
from importlib.util import find_spec
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID

import anyio.to_thread
import structlog
from sqlalchemy import ForeignKey, String
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.egress.buckets import check_google_key, check_region
from gpubloom.egress.policy import EgressRefused, Policy, is_public
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.db.database import Database
from gpubloom.server.security.secrets import CannotOpen, SealedColumn, Vault
from gpubloom.server.settings import LOOPBACK_HOSTS, Settings
from gpubloom.storage import ServerStore, SshKeys, SshStore, StorageError, StorageSettings, Store
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.store import StorageKind

log = structlog.get_logger("bloom")

_AZURE_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_FOLDER = "run-store"
_SIGNING = "run files"
# What waits for a machine that is being started; and what its SSH keys are derived from.
_STAGED = "run-staged"
_SSH_SIGNING = "ssh keys of machines"
_SEALED_FOR = "run_bucket"
# Names that mean something only in one network.
_PRIVATE_ENDINGS = ("localhost", "local", "internal", "lan", "home", "intranet", "test", "invalid")
NEEDS_OBSTORE = (
    "The storage bucket needs the package obstore. Ask the operator to run: pip install 'gpubloom[storage]'"
)


class RunBucket(Table):
    """The bucket that an admin set up: one row, or none. `sealed`: its secret key."""

    __tablename__ = "run_buckets"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, default=1)
    kind: Mapped[StorageKind] = mapped_column(String(8))
    bucket: Mapped[str]
    access_key: Mapped[str]
    sealed: Mapped[str]
    endpoint: Mapped[str]
    region: Mapped[str]
    prefix: Mapped[str]
    set_by: Mapped[UUID | None] = mapped_column(ForeignKey(User.id, ondelete="SET NULL"))
    set_at: Mapped[datetime] = mapped_column(default=now)


SEALED_COLUMN = SealedColumn(RunBucket, "sealed", lambda row: _SEALED_FOR)


def seal_secret(settings: Settings, secret: str) -> str:
    """The secret key as it is stored. Reads the key's file."""
    return Vault.of(settings.home).seal(secret, _SEALED_FOR)


async def read_bucket(session: AsyncSession, settings: Settings) -> StorageSettings | None:
    """The bucket in use; None: there is none, or its secret cannot be read any more."""
    if settings.storage is not None:
        return settings.storage
    row = await session.get(RunBucket, 1)
    return None if row is None else await anyio.to_thread.run_sync(bucket_of_row, settings, row)


def bucket_of_row(settings: Settings, row: RunBucket) -> StorageSettings | None:
    """None: a restored database without its key."""
    try:
        secret = Vault.of(settings.home).open(row.sealed, _SEALED_FOR)
    except CannotOpen:
        log.error("the secret key of the storage bucket cannot be read: set the bucket up again")
        return None
    return StorageSettings(row.bucket, row.access_key, secret, row.endpoint, row.region, row.prefix, row.kind)


def open_bucket(settings: Settings, bucket: StorageSettings) -> Store:
    """StorageError: a package is missing, or the endpoint is in a network that the operator did not allow."""
    if bucket != settings.storage:
        check_bucket_address(bucket)
    return Store(bucket)


def check_bucket_address(bucket: StorageSettings) -> None:
    """An admin's word opens no door of the operator's network. StorageError: this address is not allowed.

    The library makes host names of more than the endpoint: of the region, of an account at Azure, and of two
    fields in a key of Google that are meant for emulators.
    """
    if bucket.kind == "azure" and not _AZURE_ACCOUNT.fullmatch(bucket.key):
        raise StorageError("egress_refused", "The storage account is not valid: letters and digits only.")
    try:
        if bucket.kind == "s3":
            check_region(bucket.region)
        if bucket.kind == "gcs":
            check_google_key(bucket.secret)
    except EgressRefused as refused:
        raise StorageError(refused.code, str(refused)) from refused
    if bucket.endpoint:
        _check_endpoint(bucket.endpoint)


def _check_endpoint(endpoint: str) -> None:
    policy = Policy.of_operator()
    try:
        host, port = policy.check_address(endpoint)
        policy.resolve(host, port)
    except EgressRefused as refused:
        raise StorageError(refused.code, str(refused)) from refused
    except OSError as unknown:
        raise StorageError(
            "bucket_unavailable", "The endpoint has a host name that does not exist. Check the address."
        ) from unknown


def server_store(settings: Settings) -> ServerStore:
    """This server's own store. Reads the key's file."""
    vault = Vault.of(settings.home)
    return ServerStore(
        settings.home / _FOLDER,
        settings.address,
        lambda text: vault.sign(text, _SIGNING),
        lambda text, signature: vault.has_signed(text, signature, _SIGNING),
    )


def ssh_store(settings: Settings, key: str, job_id: UUID) -> SshStore:
    """The disk of a rented machine as a store, by the key of the attempt. Reads the key's file."""
    vault = Vault.of(settings.home)
    keys = SshKeys.derived(lambda text: vault.sign(text, _SSH_SIGNING), key)
    return SshStore(_staged(settings), JobLayout(str(job_id), 1).folder, keys)


def _staged(settings: Settings) -> ServerStore:
    """Files by their names; nothing there has an address."""
    return ServerStore(settings.home / _STAGED, "", lambda text: "", lambda text, signature: False)


def why_no_server_store(settings: Settings) -> str | None:
    """Why rented machines cannot exchange files with this server; None: they can."""
    if settings.server_store == "off":
        return "The operator switched this server off as a store (BLOOM_SERVER_STORE)."
    if settings.public_url is None:
        return "This server has no public address (BLOOM_PUBLIC_URL)."
    if settings.server_store == "on":
        return None
    parts = urlsplit(settings.public_url)
    if parts.scheme != "https":
        return "The public address of this server does not use https."
    if not _is_public_host(parts.hostname or ""):
        return (
            "The public address of this server is in a private network. If rented machines reach it, set "
            "BLOOM_SERVER_STORE=on."
        )
    return None


def _is_public_host(host: str) -> bool:
    try:
        return is_public(ip_address(host))
    except ValueError:
        pass
    labels = host.rstrip(".").split(".")
    return len(labels) > 1 and labels[-1] not in _PRIVATE_ENDINGS and host not in LOOPBACK_HOSTS


def why_no_bucket(bucket: StorageSettings | None) -> str | None:
    if bucket is None:
        return "No storage bucket is set up."
    return NEEDS_OBSTORE if find_spec("obstore") is None else None


async def remove_transport(database: Database, settings: Settings, job_id: UUID) -> None:
    """Remove what a job on rented machines left in the stores; while one is away, it stays there."""
    async with database.read() as session:
        bucket = await read_bucket(session, settings)
    await anyio.to_thread.run_sync(_remove, settings, bucket, JobLayout(str(job_id), 1).folder)


def _remove(settings: Settings, bucket: StorageSettings | None, folder: str) -> None:
    try:
        server_store(settings).delete_folder(folder)
        _staged(settings).delete_folder(folder)
        if bucket is not None:
            open_bucket(settings, bucket).delete_folder(folder)
    except StorageError as problem:
        log.warning(
            "could not delete the files of a deleted job from its store", folder=folder, reason=str(problem)
        )
