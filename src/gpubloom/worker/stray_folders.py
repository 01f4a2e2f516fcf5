"""Removes the folders of datasets, models, runs and tenants that no row names any more.

A folder without a row says that the row was deleted, or that this is not the database the folders belong to:
a new one by a mistyped address, or a copy to try an upgrade with. So a home remembers whose it is, and only
that installation removes anything from it.
"""

import asyncio
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import select

from gpubloom.server.clock import now
from gpubloom.server.datasets import files as dataset_files
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.files import finish_removed_runs
from gpubloom.server.models import files as model_files
from gpubloom.server.models.tables import Model
from gpubloom.server.rentals.keys import installation_name
from gpubloom.server.settings import Settings
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.worker.compiler_caches import remove_unused_caches

ABANDONED_AFTER = timedelta(days=1)
_OWNER_FILE = "installation"

_log = structlog.get_logger("bloom.worker")


async def remove_if_gone(database: Database, settings: Settings, row: Dataset | Model) -> None:
    """Whoever deleted a row removed its files; what a child process made since goes as well."""
    async with database.read() as session:
        if await session.get(type(row), row.id) is not None:
            return
    await remove_folder(settings, type(row), row.id)


async def remove_strays(database: Database, settings: Settings) -> None:
    """What is left of deleted rows, after a day in which nothing changed there."""
    if not await _is_owner(database, settings.home):
        return
    folders: tuple[tuple[type[Any], Path], ...] = (
        (Dataset, dataset_files.datasets_folder(settings)),
        (Model, model_files.models_folder(settings)),
    )
    for table, path in folders:
        old = await asyncio.to_thread(_old_folders, path)
        if not old:
            continue
        async with database.read() as session:
            known = set(await session.scalars(select(table.id).where(table.id.in_(old))))
        for row_id in old - known:
            await remove_folder(settings, table, row_id)
    await asyncio.to_thread(finish_removed_runs, settings)
    await remove_unused_caches(database, settings.home)


async def _is_owner(database: Database, home: Path) -> bool:
    async with database.read() as session:
        own_name = await installation_name(session)
    file = home / _OWNER_FILE
    if not file.exists():
        replace_file(file, f"{own_name}\n")
    if file.read_text(encoding="utf-8", errors="replace").strip() == own_name:
        return True
    _tell_once(file)
    return False


@cache
def _tell_once(file: Path) -> None:
    _log.warning(
        "folders of deleted datasets and models stay, because they belong to another database; if this "
        "database was moved, delete the file",
        file=str(file),
    )


async def remove_folder(settings: Settings, table: type[Any], row_id: UUID) -> None:
    remove = dataset_files.remove_dataset if table is Dataset else model_files.remove_model
    await asyncio.to_thread(remove, settings, row_id)


def _old_folders(path: Path) -> set[UUID]:
    """Folders that are named like rows and have not changed for a day."""
    found = set()
    before = now().timestamp() - ABANDONED_AFTER.total_seconds()
    for folder in path.iterdir() if path.is_dir() else ():
        try:
            row_id = UUID(folder.name)
        except ValueError:
            continue
        if folder.stat().st_mtime < before:
            found.add(row_id)
    return found
