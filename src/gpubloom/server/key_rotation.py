"""Replaces the key that encrypts stored secrets, while servers run, and safe to interrupt at any point.

1. The old key is kept beside the current one (secret.key.old); from now on both open.
2. A new key takes the place of the current one; from now on new values are encrypted with it.
3. One transaction encrypts every stored value again and signs the audit log again.
4. A second look finds values that a server had encrypted with the old key and stored after step 3.
5. The old key is deleted.

A rotation that was interrupted left the old key there. The next one goes on with step 2 or 3.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpubloom.server.accounts import hub_tokens, totp
from gpubloom.server.alerts import service as alerts
from gpubloom.server.audit import SYSTEM, record
from gpubloom.server.audit.chain import sign_again
from gpubloom.server.db.database import Database
from gpubloom.server.rentals import credentials
from gpubloom.server.rentals.store_choice import why_key_is_in_use
from gpubloom.server.secrets import service as secrets
from gpubloom.server.security.secrets import (
    KEY_FILE,
    OLD_KEY_FILE,
    CannotOpen,
    KeyInUse,
    Vault,
    read_key,
    write_new_key,
)
from gpubloom.server.storage import run_stores

# What is encrypted again. A column that is not here could not be read after a rotation.
SEALED_COLUMNS = (
    alerts.SEALED_COLUMN,
    credentials.SEALED_COLUMN,
    hub_tokens.SEALED_COLUMN,
    run_stores.SEALED_COLUMN,
    secrets.SEALED_COLUMN,
    totp.SEALED_COLUMN,
)

# Longer than a request needs from encrypting a value to storing it.
SETTLE_SECONDS = 5.0


@dataclass(frozen=True)
class Rotated:
    """How many values were encrypted again, and how many no key opens; the latter stay as they are."""

    encrypted: int
    unreadable: int


async def rotate_key(
    database: Database, home: Path, after: Callable[[str], None] = lambda step: None
) -> Rotated:
    """Replace the key. `after` is called after each step, for tests that end the process there.

    KeyInUse: something depends on the present key, and nothing was changed.
    """
    async with _alone(home):
        async with database.read() as session:
            if (sentence := await why_key_is_in_use(session)) is not None:
                raise KeyInUse(sentence)
        _replace_key(home, after)
        vault, newest = Vault.of(home), Vault(read_key(home / KEY_FILE))
        async with database.write() as session:
            first = await session.run_sync(_encrypt_again, vault, newest)
            record(session, SYSTEM, "server.key_rotated", "server", encrypted=first.encrypted)
            after("encrypted")
        after("committed")
        await asyncio.sleep(SETTLE_SECONDS)
        async with database.write() as session:
            late = await session.run_sync(_encrypt_again, vault, newest)
        after("settled")
        (home / OLD_KEY_FILE).unlink()
        _sync(home)
    return Rotated(first.encrypted + late.encrypted, late.unreadable)


@asynccontextmanager
async def _alone(home: Path) -> AsyncIterator[None]:
    Vault.of(home)
    with (home / ".secret.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield


def _replace_key(home: Path, after: Callable[[str], None]) -> None:
    current, old = home / KEY_FILE, home / OLD_KEY_FILE
    if old.exists() and read_key(old) != read_key(current):
        # An earlier rotation was interrupted after this point.
        return
    new = write_new_key(home)
    try:
        after("new_key")
        if not old.exists():
            os.link(current, old)
            _sync(home)
        after("old_kept")
        new.replace(current)
    finally:
        new.unlink(missing_ok=True)
    _sync(home)
    after("replaced")


def _encrypt_again(session: Session, vault: Vault, newest: Vault) -> Rotated:
    encrypted = unreadable = 0
    for column in SEALED_COLUMNS:
        for row in session.scalars(select(column.table).with_for_update()):
            sealed, context = getattr(row, column.name), column.context(row)
            if sealed is None:
                continue
            try:
                newest.open(sealed, context)
            except CannotOpen:
                try:
                    setattr(row, column.name, newest.seal(vault.open(sealed, context), context))
                    encrypted += 1
                except CannotOpen:
                    unreadable += 1
    session.flush()
    sign_again(session, vault)
    return Rotated(encrypted, unreadable)


def _sync(home: Path) -> None:
    descriptor = os.open(home, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
