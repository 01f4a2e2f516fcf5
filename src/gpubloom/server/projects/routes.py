"""The HTTP routes of projects."""

from uuid import UUID

from fastapi import APIRouter

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.db.pages import PageQuery
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.projects import service
from gpubloom.server.projects.schemas import CamelProjectIn, ProjectChange, ProjectOut, Projects

router = APIRouter(prefix="/projects", tags=["projects"])


@router.get("")
async def list_projects(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: PageQuery,
) -> Projects:
    """List the user's projects, last changed first."""
    rows, total = await service.list_projects(session, principal, page)
    return Projects(items=[ProjectOut.model_validate(row) for row in rows], total=total)


@router.post("", status_code=201)
async def create_project(
    body: CamelProjectIn,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    creation: CurrentCreation,
) -> ProjectOut:
    """Create a project."""
    if (made_id := await creation.find_made(session)) is not None:
        return ProjectOut.model_validate(await service.get_project(session, principal, made_id))
    project = await service.create_project(session, principal, body, settings)
    await creation.remember(session, project.id)
    return ProjectOut.model_validate(project)


@router.get("/{project_id}")
async def read_project(project_id: UUID, principal: CurrentPrincipal, session: ReadSession) -> ProjectOut:
    """Return one project."""
    return ProjectOut.model_validate(await service.get_project(session, principal, project_id))


@router.put("/{project_id}")
async def replace_project(
    project_id: UUID,
    body: CamelProjectIn,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> ProjectOut:
    """Replace all fields of a project."""
    project = await service.change_project(session, principal, project_id, body, settings)
    return ProjectOut.model_validate(project)


@router.patch("/{project_id}")
async def change_project(
    project_id: UUID,
    body: ProjectChange,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> ProjectOut:
    """Change some fields of a project."""
    project = await service.change_project(session, principal, project_id, body, settings)
    return ProjectOut.model_validate(project)


@router.delete("/{project_id}", status_code=204)
async def delete_project(project_id: UUID, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Delete a project."""
    await service.delete_project(session, principal, project_id)
