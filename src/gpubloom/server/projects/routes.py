"""The addresses of projects."""

from uuid import UUID

from fastapi import APIRouter

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.db.pages import AskedPage
from gpubloom.server.projects import service
from gpubloom.server.projects.schemas import ProjectIn, ProjectOut, Projects

router = APIRouter(prefix="/projects", tags=["projects"])


@router.get("")
async def list_projects(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: AskedPage,
) -> Projects:
    """One's own projects, the one changed last first."""
    rows, total = await service.list_projects(session, principal, page)
    return Projects(items=[ProjectOut.model_validate(row) for row in rows], total=total)


@router.post("", status_code=201)
async def create_project(
    body: ProjectIn, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> ProjectOut:
    """Create a project."""
    return ProjectOut.model_validate(await service.create_project(session, principal, body, settings))


@router.get("/{project_id}")
async def read_project(project_id: UUID, principal: CurrentPrincipal, session: ReadSession) -> ProjectOut:
    """One project."""
    return ProjectOut.model_validate(await service.get_project(session, principal, project_id))


@router.put("/{project_id}")
async def replace_project(
    project_id: UUID,
    body: ProjectIn,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> ProjectOut:
    """Change a project: all its fields are replaced."""
    project = await service.replace_project(session, principal, project_id, body, settings)
    return ProjectOut.model_validate(project)


@router.delete("/{project_id}", status_code=204)
async def delete_project(project_id: UUID, principal: CurrentPrincipal, session: WriteSession) -> None:
    """Delete a project."""
    await service.delete_project(session, principal, project_id)
