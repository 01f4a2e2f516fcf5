"""A trained model as a model of one's own, from which further jobs start.

Its files are linked into a folder of the models, so the model stays when the job is deleted, and takes no
second copy on the disk. An adapter alone is no model: its merged export is.
"""

import os
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.jobs import service as jobs
from gpubloom.server.jobs.files import FoundFile, model_files
from gpubloom.server.models import service as models
from gpubloom.server.models.checks import CheckFailed, check_folder
from gpubloom.server.models.files import own_folder, remove_model
from gpubloom.server.models.routes import shown
from gpubloom.server.models.schemas import FILE_NAME, ModelFile, ModelOut, NewModel
from gpubloom.server.problems import Conflict
from gpubloom.server.storage.service import Readers

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.post("/base-model", status_code=201)
async def use_as_base(
    job_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    readers: Readers,
    creation: CurrentCreation,
) -> ModelOut:
    """Add the finished model of a job to your models, as the base model of further jobs."""
    async with database.read() as session:
        job, _project = await jobs.get_job(session, principal, job_id)
    files = await anyio.to_thread.run_sync(model_files, settings, job.id)
    files = [file for file in files if FILE_NAME.fullmatch(file.name)]
    names = {file.name for file in files}
    has_weights = any(name.endswith(".safetensors") for name in names)
    if job.status != "completed" or "config.json" not in names or not has_weights:
        raise Conflict("The job has no finished model yet. Wait until it ends.", code="no_model_yet")
    if "adapter_config.json" in names:
        raise Conflict(
            "The job trained an adapter. Export it as a merged model first, and use that export as the base "
            "model.",
            code="adapter_in_model",
        )
    body = NewModel(
        source="upload", name=job.name, files=[ModelFile(path=file.name, size=file.size) for file in files]
    )
    async with database.write() as session:
        if (made_id := await creation.find_made(session)) is not None:
            return await shown(settings, await models.get_model(session, principal, made_id))
        model = await models.create_model(session, principal, settings, body)
        await creation.remember(session, model.id)
    folder = own_folder(settings, model.id)
    try:
        await anyio.to_thread.run_sync(_link, files, folder)
        async with readers:
            check: dict[str, Any] = await check_folder(folder, settings.sandbox_mode)
    except (OSError, CheckFailed) as failure:
        await anyio.to_thread.run_sync(remove_model, settings, model.id)
        async with database.write() as session:
            await models.note_failure(session, model.id, "The files of the job could not be read.")
        raise Conflict(
            "The files of the job could not be read. Download the model and upload it instead.",
            code="check_failed",
        ) from failure
    async with database.write() as session:
        await models.note_check(session, model.id, check)
        model = await models.get_model(session, principal, model.id)
    return await shown(settings, model)


def _link(files: list[FoundFile], folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    for file in files:
        source, target = file.run_dir / file.folder / file.name, folder / file.name
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            # Another disk, or one that has no links. `open` follows none, whoever has put one there since.
            with file.open() as stream, target.open("wb") as copy:
                shutil.copyfileobj(stream, copy)
