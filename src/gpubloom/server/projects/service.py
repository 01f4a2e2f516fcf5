"""Operations on projects. Every query filters by the owner."""

from uuid import UUID, uuid4

from sqlalchemy import Select, delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.db.pages import Page, read_page
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.projects.data_paths import DataPathRefused, check_data_path
from gpubloom.server.projects.schemas import ProjectChange, ProjectIn
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings


def visible_to(principal: Principal) -> Select[Project]:
    """The projects a person may see: their own."""
    return select(Project).where(Project.user_id == principal.id)


async def list_projects(session: AsyncSession, principal: Principal, page: Page) -> tuple[list[Project], int]:
    """A page of a person's projects, the one changed last first, and how many there are."""
    return await read_page(
        session,
        visible_to(principal).order_by(Project.updated_at.desc(), Project.id),
        page,
        searched=(Project.name, Project.description),
    )


async def get_project(session: AsyncSession, principal: Principal, project_id: UUID) -> Project:
    """One project. Projects of other users are not found."""
    project = await session.scalar(visible_to(principal).where(Project.id == project_id))
    if project is None:
        raise NotFound("This project does not exist.")
    return project


def _fields(body: ProjectIn, settings: Settings) -> dict[str, object]:
    fields = body.model_dump(exclude_unset=isinstance(body, ProjectChange))
    if body.training_data_path is not None:
        try:
            fields["training_data_path"] = check_data_path(body.training_data_path, settings)
        except DataPathRefused as refusal:
            raise InvalidInput.for_field("trainingDataPath", str(refusal), code=refusal.code) from refusal
    return fields


def _record(session: AsyncSession, principal: Principal, action: str, project: Project) -> None:
    record(session, principal.actor, action, f"project:{project.id}", project.id, name=project.name)


async def create_project(
    session: AsyncSession, principal: Principal, body: ProjectIn, settings: Settings
) -> Project:
    """A new project of this person's."""
    project = Project(id=uuid4(), user_id=principal.id, **_fields(body, settings))
    session.add(project)
    await session.flush()
    _record(session, principal, "project.created", project)
    return project


async def change_project(
    session: AsyncSession, principal: Principal, project_id: UUID, body: ProjectIn, settings: Settings
) -> Project:
    """Change a project: all fields, or with a ProjectChange only the fields that were sent."""
    # Looks at files, so it comes before the first statement, which begins the transaction.
    fields = _fields(body, settings)
    project = await get_project(session, principal, project_id)
    for field, value in fields.items():
        setattr(project, field, value)
    await session.flush()
    _record(session, principal, "project.changed", project)
    return project


async def delete_project(session: AsyncSession, principal: Principal, project_id: UUID) -> None:
    """Remove a project that has no jobs."""
    project = await get_project(session, principal, project_id)
    try:
        await session.execute(delete(Project).where(Project.id == project.id))
    except IntegrityError as error:
        raise Conflict(
            "This project has jobs. Delete the jobs first, then the project.", code="project_in_use"
        ) from error
    _record(session, principal, "project.deleted", project)
