"""What the jobs of each tenant compiled: `cache/compiled/TENANT` of the home.

A job may write anything into the folder of its tenant, links too. So the server only makes, renames and
removes whole folders here, and never opens or copies what a job may have made.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

from sqlalchemy import select

from gpubloom.providers.local.sandbox import CACHE_FOLDER
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import remove_tree
from gpubloom.server.jobs.states import ACTIVE
from gpubloom.server.jobs.tables import TrainingJob

KEPT_UNUSED = timedelta(days=30)
_KEPT_WITHOUT_TENANT = timedelta(days=1)
# Of the server's own cache, what was compiled and measured. It also holds data and runs of the server's user.
_SHARED = ("programs-*", "*.so", "machine-*.json", "processes-*.json")
# Where jobs compiled before they looked for the copied programs; nothing reads these any more.
_FORMER = ("inductor", "triton")


def tenant_cache(home: Path, tenant: str) -> Path:
    """For a job that starts. It begins with what the server's own user has, which saves a minute."""
    folder = _root(home) / tenant
    if not folder.is_dir():
        _create(folder)
    # When it was last used, for `remove_unused_caches`.
    os.utime(folder)
    return folder


def _create(folder: Path) -> None:
    """Complete from the start: while files were copied, another job of the tenant could change where to."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = folder.with_name(f".new-{uuid4()}")
    target = new / CACHE_FOLDER
    for each in (new, target):
        each.mkdir(mode=0o700)
    for pattern in _SHARED:
        for path in server_cache().glob(pattern):
            _copy(path, target / path.name)
    try:
        new.rename(folder)
    except OSError:
        remove_tree(new)
        if not folder.is_dir():
            raise


def _copy(path: Path, target: Path) -> None:
    try:
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy2(path, target)
    except OSError:
        # A run of the server's user changes it just now, or the disk is full. The job compiles it again.
        remove_tree(target)


def server_cache() -> Path:
    """What the server's own user compiled."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / CACHE_FOLDER


async def remove_unused_caches(database: Database, home: Path) -> None:
    """Remove the caches of tenants who are gone or started no job for 30 days."""
    root = _root(home)
    tenants = await asyncio.to_thread(_to_check, root)
    if tenants:
        async with database.read() as session:
            known = set(await session.scalars(select(User.id).where(User.id.in_(tenants))))
            running = set(
                await session.scalars(
                    select(TrainingJob.user_id)
                    .where(TrainingJob.user_id.in_(tenants), TrainingJob.status.in_(ACTIVE))
                    .distinct()
                )
            )
        for tenant in tenants - running:
            kept = KEPT_UNUSED if tenant in known else _KEPT_WITHOUT_TENANT
            await asyncio.to_thread(_clean, root / str(tenant), kept)
        for tenant in running:
            with suppress(OSError):
                os.utime(root / str(tenant))
    await asyncio.to_thread(_finish, root)


def _root(home: Path) -> Path:
    return home / "cache" / "compiled"


def _to_check(root: Path) -> set[UUID]:
    """Tenants whose folder may be too old, or has parts that nothing reads."""
    found = set()
    for folder in root.iterdir() if root.is_dir() else ():
        with suppress(ValueError, OSError):
            tenant = UUID(folder.name)
            if _is_older(folder, _KEPT_WITHOUT_TENANT) or _former_parts(folder):
                found.add(tenant)
    return found


def _clean(folder: Path, kept: timedelta) -> None:
    # Looked at again: a job may have started since.
    with suppress(OSError):
        if _is_older(folder, kept):
            folder.rename(folder.with_name(f".removed-{uuid4()}"))
            return
    for part in _former_parts(folder):
        remove_tree(part)


def _former_parts(folder: Path) -> list[Path]:
    # A link is not followed, and stays: `remove_tree` refuses it.
    return [part for name in _FORMER if (part := folder / name).is_dir() and not part.is_symlink()]


def _finish(root: Path) -> None:
    """Remove what was set aside, and copies that a killed server left unfinished."""
    for folder in root.glob(".removed-*"):
        remove_tree(folder)
    for folder in root.glob(".new-*"):
        with suppress(OSError):
            if _is_older(folder, _KEPT_WITHOUT_TENANT):
                remove_tree(folder)


def _is_older(folder: Path, age: timedelta) -> bool:
    return folder.lstat().st_mtime < (now() - age).timestamp()
