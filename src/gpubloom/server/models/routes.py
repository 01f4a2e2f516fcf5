"""The HTTP routes of models."""

from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, BackgroundTasks, Request, Response

from gpubloom.hub.catalogue import USUAL_SETTING, catalogue
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import CurrentDatabase, Database, ReadSession, WriteSession
from gpubloom.server.db.pages import PageQuery
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.models import service
from gpubloom.server.models.checks import CheckFailed, check_folder
from gpubloom.server.models.files import (
    allowed_folder,
    arriving_file,
    is_whole,
    own_folder,
    received_bytes,
    remove_model,
)
from gpubloom.server.models.schemas import CatalogueOut, FamilyOut, ModelOut, Models, NewModel
from gpubloom.server.models.tables import Model
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.projects.data_paths import DataPathRefused
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import Readers, Uses
from gpubloom.server.storage.uploads import Arriving, UploadOffset, offset_answer, take_piece

router = APIRouter(tags=["models"])


async def shown(settings: Settings, model: Model) -> ModelOut:
    """A model as the API answers it."""
    received = model.received
    if model.status == "uploading":
        received = await anyio.to_thread.run_sync(received_bytes, settings, model)
    progress = received / model.size if model.status == "uploading" and model.size else model.progress
    return ModelOut.model_validate(
        {
            **{field: getattr(model, field) for field in ModelOut.model_fields},
            "files": [{"path": path, "size": size} for path, size in model.files.items()],
            "received": received,
            "progress": progress,
        }
    )


@router.get("/catalogue")
async def read_catalogue(principal: CurrentPrincipal) -> CatalogueOut:
    """List common base models and their memory requirements."""
    # Computed by the planner the first time, which takes a moment.
    families = await anyio.to_thread.run_sync(catalogue)
    return CatalogueOut(
        setting=USUAL_SETTING, families=[FamilyOut.model_validate(asdict(family)) for family in families]
    )


@router.get("/models")
async def list_models(
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    page: PageQuery,
) -> Models:
    """List your models, newest first."""
    rows, total = await service.list_models(session, principal, page)
    return Models(items=[await shown(settings, row) for row in rows], total=total)


@router.post("/models", status_code=201)
async def add_model(
    body: NewModel,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    readers: Readers,
    creation: CurrentCreation,
) -> ModelOut:
    """Add a model: download it from the Hugging Face Hub, use a folder on the server, or upload its files."""
    check = None
    if body.source == "folder":
        assert body.path is not None
        try:
            folder = await anyio.to_thread.run_sync(allowed_folder, body.path, settings)
        except DataPathRefused as refusal:
            raise service.require_allowed(refusal) from refusal
        async with readers:
            check = await _checked(settings, folder)
    async with database.write() as session:
        if (made_id := await creation.find_made(session)) is not None:
            return await shown(settings, await service.get_model(session, principal, made_id))
        model = await service.create_model(session, principal, settings, body, check=check)
        await creation.remember(session, model.id)
    if body.source == "upload":
        folder = own_folder(settings, model.id)
        await anyio.to_thread.run_sync(lambda: folder.mkdir(parents=True, exist_ok=True, mode=0o700))
    return await shown(settings, model)


async def _checked(settings: Settings, folder: Path) -> dict[str, Any]:
    try:
        return await check_folder(folder, settings.sandbox_mode)
    except CheckFailed as failure:
        raise Conflict(str(failure), code="check_failed") from failure


@router.get("/models/{model_id}")
async def read_model(
    model_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> ModelOut:
    """Return one model."""
    return await shown(settings, await service.get_model(session, principal, model_id))


@router.delete("/models/{model_id}", status_code=204)
async def delete_model(
    model_id: UUID,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    uses: Uses,
    after: BackgroundTasks,
) -> None:
    """Delete a model and its downloaded or uploaded files. A folder on the server is kept."""
    model = await service.delete_model(session, principal, model_id, uses)
    after.add_task(anyio.to_thread.run_sync, remove_model, settings, model.id)


@router.post("/models/{model_id}/check")
async def check_model(
    model_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    readers: Readers,
) -> ModelOut:
    """Check the folder of a model again."""
    async with database.read() as session:
        model = await service.get_model(session, principal, model_id)
        folder = await service.folder_to_read(session, principal, settings, model_id)
    async with readers:
        check = await _checked(settings, folder)
    async with database.write() as session:
        await service.note_check(session, model.id, check)
        model = await service.get_model(session, principal, model_id)
    return await shown(settings, model)


@router.post("/models/{model_id}/fetch")
async def fetch_again(
    model_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> ModelOut:
    """Try a failed download from the Hugging Face Hub again."""
    return await shown(settings, await service.fetch_again(session, principal, model_id))


def _announced(settings: Settings, model: Model, path: str) -> Arriving:
    # Looked up in the list, never joined to a folder: no name can lead elsewhere.
    if path not in model.files:
        raise NotFound(
            "This file is not in the file list that was sent when the model was added.", code="file_not_found"
        )
    return arriving_file(settings, model, path)


@router.head("/models/{model_id}/files/{path}", status_code=200, response_class=Response)
async def read_offset(
    model_id: UUID, path: str, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> Response:
    """Return the number of uploaded bytes of a file in the header Upload-Offset."""
    model = await service.get_model(session, principal, model_id)
    received = await anyio.to_thread.run_sync(_announced(settings, model, path).received)
    return offset_answer(received, status=200)


@router.patch(
    "/models/{model_id}/files/{path}",
    status_code=204,
    response_class=Response,
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}, "required": True}},
)
async def upload_file(
    model_id: UUID,
    path: str,
    request: Request,
    upload_offset: UploadOffset,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    readers: Readers,
) -> Response:
    """Append bytes to a file at an offset. After the last byte of the last file, the model is checked."""
    async with database.read() as session:
        model = await service.get_model(session, principal, model_id)
    file = _announced(settings, model, path)
    try:
        received = await take_piece(request, file, upload_offset)
    finally:
        here = await anyio.to_thread.run_sync(received_bytes, settings, model)
        async with database.write() as session:
            await service.note_received(session, model.id, here)
    if model.status == "uploading" and await anyio.to_thread.run_sync(is_whole, settings, model):
        async with readers:
            await _finish(database, settings, model.id)
    return offset_answer(received)


async def _finish(database: Database, settings: Settings, model_id: UUID) -> None:
    try:
        check = await check_folder(own_folder(settings, model_id), settings.sandbox_mode)
    except CheckFailed as failure:
        async with database.write() as session:
            await service.note_failure(session, model_id, str(failure))
    else:
        async with database.write() as session:
            await service.note_check(session, model_id, check)
