"""User accounts and the audit trail, for admins."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.accounts.schemas import Role
from gpubloom.server.accounts.sessions import end_all_sessions
from gpubloom.server.accounts.tables import BrowserSession, User
from gpubloom.server.administration.invitations import void_invitations
from gpubloom.server.audit import AuditEvent, record
from gpubloom.server.audit.maintenance import AuditFilter
from gpubloom.server.db.pages import Page
from gpubloom.server.problems import Conflict, NotFound


async def list_people(session: AsyncSession) -> list[tuple[User, datetime | None]]:
    """Every account, with the time of the user's last browser session."""
    seen = func.max(BrowserSession.last_seen_at)
    rows = await session.execute(
        select(User, seen)
        .outerjoin(BrowserSession, BrowserSession.user_id == User.id)
        .group_by(User.id)
        .order_by(User.created_at, User.id)
    )
    return [(user, last) for user, last in rows]


async def change_person(
    session: AsyncSession, principal: Principal, user_id: UUID, *, role: Role | None, disabled: bool | None
) -> User:
    """Change a user's role, or disable or enable the account."""
    # All admins' rows are locked, so that two admins cannot demote each other at the same moment.
    admins = list(
        await session.scalars(
            select(User)
            .where(User.role == "admin", User.disabled.is_(False))
            .order_by(User.id)
            .with_for_update()
        )
    )
    user = await session.scalar(select(User).where(User.id == user_id))
    if user is None:
        raise NotFound("This user does not exist.")
    loses_admin = role == "member" or disabled is True
    if loses_admin and [admin.id for admin in admins] == [user.id]:
        raise Conflict(
            "This account is the only admin. Give another account the admin role first.", code="last_admin"
        )
    if role is not None:
        user.role = role
    if disabled is not None:
        user.disabled = disabled
    if user.disabled:
        await end_all_sessions(session, user.id)
    if user.disabled or user.role != "admin":
        await void_invitations(session, principal, user.id)
    await session.flush()
    record(
        session, principal.actor, "user.changed", f"user:{user.id}", role=user.role, disabled=user.disabled
    )
    return user


async def list_audit_events(
    session: AsyncSession, page: Page, wanted: AuditFilter
) -> tuple[list[tuple[AuditEvent, User | None]], int]:
    """A page of the audit trail, newest event first, and the total number of events."""
    statement = (
        select(AuditEvent, User).outerjoin(User, User.id == AuditEvent.actor_id).where(*wanted.conditions())
    )
    if page.search:
        searched = (AuditEvent.action, AuditEvent.subject, User.name, User.email)
        statement = statement.where(or_(*(each.icontains(page.search, autoescape=True) for each in searched)))
    total = await session.scalar(
        select(func.count()).select_from(statement.with_only_columns(AuditEvent.id).subquery())
    )
    rows = await session.execute(
        statement.order_by(AuditEvent.at.desc(), AuditEvent.id.desc()).limit(page.limit).offset(page.offset)
    )
    return [(event, actor) for event, actor in rows], total or 0
