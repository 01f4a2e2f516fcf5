"""The HTTP routes of administration."""

from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

import gpubloom
from gpubloom import plugins
from gpubloom.server.accounts.principal import AdminPrincipal, CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.reauthentication import FreshAdminPrincipal
from gpubloom.server.accounts.schemas import UserOut
from gpubloom.server.administration import service
from gpubloom.server.administration.schemas import (
    ActorOut,
    AuditEventOut,
    AuditEvents,
    People,
    PersonChange,
    PersonOut,
    ServerOut,
    ServerWarnings,
)
from gpubloom.server.administration.warnings import server_warnings
from gpubloom.server.audit import record_apart
from gpubloom.server.audit.maintenance import FilterQuery, export
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.db.pages import PageQuery

router = APIRouter(tags=["administration"])


@router.get("/server")
async def read_server(principal: CurrentPrincipal, settings: CurrentSettings) -> ServerOut:
    """Return the server's version. Admins also see the data folders that the server may read."""
    is_admin = principal.user.role == "admin"
    return ServerOut(
        version=gpubloom.__version__,
        signup=settings.signup,
        uploads_folder=str(settings.uploads) if is_admin else None,
        data_roots=[str(root) for root in settings.data_roots] if is_admin else [],
        architectures=list(plugins.names("architectures")),
    )


@router.get("/server/warnings")
async def read_warnings(principal: AdminPrincipal, settings: CurrentSettings) -> ServerWarnings:
    """List what the operator should change about how this server runs."""
    return ServerWarnings(items=await anyio.to_thread.run_sync(server_warnings, settings.sandbox_mode))


@router.get("/users")
async def list_people(principal: AdminPrincipal, session: ReadSession) -> People:
    """List all user accounts."""
    rows = await service.list_people(session)
    return People(
        items=[
            PersonOut(**UserOut.model_validate(user).model_dump(), disabled=user.disabled, last_seen_at=seen)
            for user, seen in rows
        ]
    )


@router.patch("/users/{user_id}")
async def change_person(
    user_id: UUID, body: PersonChange, principal: FreshAdminPrincipal, session: WriteSession
) -> UserOut:
    """Change a user's role, or disable or enable the account."""
    user = await service.change_person(session, principal, user_id, role=body.role, disabled=body.disabled)
    return UserOut.model_validate(user)


@router.get("/audit-events")
async def list_audit_events(
    principal: AdminPrincipal,
    session: ReadSession,
    page: PageQuery,
    wanted: FilterQuery,
) -> AuditEvents:
    """List the audit trail, newest event first."""
    rows, total = await service.list_audit_events(session, page, wanted)
    items = [
        AuditEventOut(
            id=event.id,
            sequence=event.sequence,
            at=event.at,
            actor=None
            if actor is None
            else ActorOut.model_validate(actor, from_attributes=True, extra="ignore"),
            action=event.action,
            subject=event.subject,
            project_id=event.project_id,
            ip_address=event.ip_address,
            details=event.details,
        )
        for event, actor in rows
    ]
    return AuditEvents(items=items, total=total)


@router.get("/audit-events/export", response_class=StreamingResponse)
async def export_audit_events(
    principal: AdminPrincipal, database: CurrentDatabase, wanted: FilterQuery
) -> StreamingResponse:
    """Download the audit trail as JSON lines, oldest event first, with the hash of every event."""
    await record_apart(database, principal.actor, "audit.exported", "audit")
    return StreamingResponse(
        export(database, wanted),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="audit.jsonl"', "Cache-Control": "no-store"},
    )
