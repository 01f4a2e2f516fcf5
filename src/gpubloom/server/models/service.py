"""Operations on models. Every query filters by the owner."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Select, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.db.pages import Page, read_page
from gpubloom.server.models.files import model_folder
from gpubloom.server.models.schemas import NewModel
from gpubloom.server.models.tables import Model
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.projects.data_paths import DataPathRefused
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import FindUse, require_room, require_unused


def visible_to(principal: Principal) -> Select[Model]:
    """The models a person may see: their own."""
    return select(Model).where(Model.user_id == principal.id)


async def list_models(session: AsyncSession, principal: Principal, page: Page) -> tuple[list[Model], int]:
    """A page of a person's models, the newest first, and how many there are."""
    return await read_page(
        session,
        visible_to(principal).order_by(Model.created_at.desc(), Model.id),
        page,
        searched=(Model.name, Model.repository),
    )


async def get_model(session: AsyncSession, principal: Principal, model_id: UUID) -> Model:
    """One model. Models of other users are not found."""
    model = await session.scalar(visible_to(principal).where(Model.id == model_id))
    if model is None:
        raise NotFound("This model does not exist.")
    return model


async def get_ready_model(session: AsyncSession, principal: Principal, model_id: UUID) -> Model:
    """One model that can be loaded. Raises with the reason if it cannot."""
    model = await get_model(session, principal, model_id)
    if model.status != "ready":
        raise Conflict(f"The model is not ready (status: {model.status}).", code="model_not_ready")
    for finding in (model.check or {}).get("findings", []):
        if finding["severity"] == "error":
            raise Conflict(
                f"The model cannot be loaded. {finding['sentence']}", code=f"model_{finding['code']}"
            )
    return model


def readable_folder(settings: Settings, model: Model) -> Path:
    """The folder of a model that is ready; one outside may have been moved or closed since."""
    try:
        return model_folder(settings, model)
    except DataPathRefused as refusal:
        raise Conflict(str(refusal), code="model_folder_gone") from refusal


async def folder_to_read(
    session: AsyncSession, principal: Principal, settings: Settings, model_id: UUID
) -> Path:
    """The folder of a person's own model, for whatever only reads its tokenizer and template."""
    model = await get_model(session, principal, model_id)
    if model.status != "ready":
        raise Conflict(f"The model is not ready (status: {model.status}).", code="model_not_ready")
    return readable_folder(settings, model)


async def create_model(
    session: AsyncSession,
    principal: Principal,
    settings: Settings,
    body: NewModel,
    *,
    check: dict[str, Any] | None = None,
) -> Model:
    """A model that will be fetched or uploaded; or, with its check, one in a folder that is there."""
    size = sum(file.size for file in body.files) if body.source == "upload" else 0
    if body.source != "folder":
        await require_room(session, principal, settings, size)
    model = Model(
        id=uuid4(),
        user_id=principal.id,
        name=body.name or body.repository or _last_part(body.path) or "Uploaded model",
        source=body.source,
        status={"hub": "fetching", "upload": "uploading", "folder": "ready"}[body.source],
        repository=body.repository if body.source == "hub" else None,
        revision=body.revision if body.source == "hub" else None,
        path=body.path if body.source == "folder" else None,
        files={file.path: file.size for file in body.files} if body.source == "upload" else {},
        size=size,
        check=check,
    )
    if check is not None:
        model.size = model.received = int(check["bytes"])
    session.add(model)
    await session.flush()
    _record(session, principal, "model.created", model, source=model.source)
    return model


def _last_part(path: str | None) -> str | None:
    return path.rstrip("/").rpartition("/")[2] if path else None


async def note_received(session: AsyncSession, model_id: UUID, received: int) -> None:
    """Keep how much of an upload has arrived."""
    await session.execute(
        update(Model).where(Model.id == model_id, Model.status == "uploading").values(received=received)
    )


async def note_check(session: AsyncSession, model_id: UUID, check: dict[str, Any]) -> None:
    """Store the check of a model whose files are complete."""
    await session.execute(
        update(Model)
        .where(Model.id == model_id, Model.status.in_(("uploading", "ready")))
        .values(status="ready", check=check, received=Model.size, progress=None, problem=None)
    )


async def note_failure(session: AsyncSession, model_id: UUID, sentence: str) -> None:
    """An upload that arrived and cannot even be checked."""
    await session.execute(
        update(Model)
        .where(Model.id == model_id, Model.status == "uploading")
        .values(status="failed", problem=sentence, progress=None)
    )


async def fetch_again(session: AsyncSession, principal: Principal, model_id: UUID) -> Model:
    """Queue a failed download again; what has arrived is kept."""
    model = await get_model(session, principal, model_id)
    if model.source != "hub" or model.status != "failed":
        raise Conflict(
            f"Only a failed download can be tried again. This model is {model.status}.",
            code="download_not_failed",
        )
    model.status, model.problem, model.progress = "fetching", None, None
    await session.flush()
    _record(session, principal, "model.fetched_again", model)
    return model


async def delete_model(
    session: AsyncSession, principal: Principal, model_id: UUID, uses: Sequence[FindUse]
) -> Model:
    """Remove a model that nothing unfinished needs; its files are removed by the caller."""
    model = await get_model(session, principal, model_id)
    await require_unused(session, uses, "model", model.id)
    await session.execute(delete(Model).where(Model.id == model.id))
    _record(session, principal, "model.deleted", model)
    return model


def require_allowed(refusal: DataPathRefused) -> InvalidInput:
    """A folder that may not be used, as an error of the field that named it."""
    return InvalidInput.for_field("path", str(refusal), code=refusal.code)


def _record(session: AsyncSession, principal: Principal, action: str, model: Model, **details: str) -> None:
    record(session, principal.actor, action, f"model:{model.id}", name=model.name, **details)
