"""Clears away uploads that nobody continues and folders that no row knows, and completes uploads that were
whole when the server that took them came to an end."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import select

from gpubloom.server.audit.service import record
from gpubloom.server.clock import now
from gpubloom.server.datasets import files as dataset_files
from gpubloom.server.datasets import service as datasets
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.database import Database
from gpubloom.server.models import files as model_files
from gpubloom.server.models import service as models
from gpubloom.server.models.checks import CheckFailed, check_folder
from gpubloom.server.models.tables import Model
from gpubloom.server.settings import Settings

ABANDONED_AFTER = timedelta(days=1)


async def sweep(database: Database, settings: Settings) -> None:
    """Everything once."""
    async with database.read() as session:
        uploads = list(await session.scalars(select(Dataset).where(Dataset.status == "uploading")))
        model_uploads = list(await session.scalars(select(Model).where(Model.status == "uploading")))
    for dataset in uploads:
        arriving = dataset_files.arriving_file(settings, dataset)
        if arriving.is_whole:
            async with database.write() as session:
                await datasets.note_received(session, dataset.id, dataset.size)
        elif _is_abandoned(dataset, dataset_files.dataset_folder(settings, dataset.id)):
            await _abandon(database, settings, dataset)
    for model in model_uploads:
        folder = model_files.own_folder(settings, model.id)
        if await asyncio.to_thread(model_files.is_whole, settings, model):
            await _check(database, model, folder)
        elif _is_abandoned(model, folder):
            await _abandon(database, settings, model)
    await _remove_strays(database, settings)


def _is_abandoned(row: Dataset | Model, folder: Path) -> bool:
    """Whether neither the row nor a file of it has changed for a day."""
    moments = [row.updated_at.timestamp()]
    if folder.is_dir():
        moments += [path.stat().st_mtime for path in folder.iterdir()]
    return time.time() - max(moments) > ABANDONED_AFTER.total_seconds()


async def _abandon(database: Database, settings: Settings, row: Dataset | Model) -> None:
    async with database.write() as session:
        stored: Dataset | Model | None = await session.get(type(row), row.id)
        if stored is None or stored.updated_at != row.updated_at:
            return
        await session.delete(stored)
        kind = type(row).__name__.lower()
        record(
            session,
            f"{kind}.abandoned",
            actor=None,
            subject=f"{kind}:{row.id}",
            ip_address=None,
            name=row.name,
        )
    await _remove(settings, type(row), row.id)


async def _check(database: Database, model: Model, folder: Path) -> None:
    try:
        check = await check_folder(folder)
    except CheckFailed as failure:
        async with database.write() as session:
            await models.note_failure(session, model.id, str(failure))
        return
    async with database.write() as session:
        await models.note_check(session, model.id, check)


async def remove_if_gone(database: Database, settings: Settings, row: Dataset | Model) -> None:
    """Whoever deleted a row removed its files; what a child process made since goes as well."""
    async with database.read() as session:
        if await session.get(type(row), row.id) is not None:
            return
    await _remove(settings, type(row), row.id)


async def _remove(settings: Settings, table: type[Any], row_id: UUID) -> None:
    remove = dataset_files.remove_dataset if table is Dataset else model_files.remove_model
    await asyncio.to_thread(remove, settings, row_id)


async def _remove_strays(database: Database, settings: Settings) -> None:
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
            await _remove(settings, table, row_id)


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
