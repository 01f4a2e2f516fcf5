"""Confirm it is you: what could make a stolen session permanent needs a sign-in of the last ten minutes.

Such routes ask for `FreshPrincipal`. A session is as fresh as its `authenticated_at`: the moment of sign-in,
or of the last confirmation. API tokens never are fresh: one that leaked must not make others.
"""

from datetime import timedelta
from typing import Annotated

from fastapi import Depends
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import AdminPrincipal, Principal, SessionPrincipal
from gpubloom.server.accounts.tables import BrowserSession
from gpubloom.server.clock import now
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.problems import Forbidden

FRESH_FOR = timedelta(minutes=10)


async def _require_fresh(principal: SessionPrincipal, database: CurrentDatabase) -> Principal:
    async with database.read() as session:
        authenticated_at = await session.scalar(
            select(BrowserSession.authenticated_at).where(BrowserSession.id == principal.session_id)
        )
    if authenticated_at is None or authenticated_at + FRESH_FOR < now():
        raise Forbidden(
            "Your last sign-in is more than 10 minutes ago. Confirm that it is you, then try again.",
            code="fresh_sign_in_required",
        )
    return principal


FreshPrincipal = Annotated[Principal, Depends(_require_fresh)]


async def _require_fresh_admin(_admin: AdminPrincipal, principal: FreshPrincipal) -> Principal:
    return principal


FreshAdminPrincipal = Annotated[Principal, Depends(_require_fresh_admin)]


async def refresh(session: AsyncSession, principal: Principal) -> None:
    """Note that the owner of this session has just proved who they are."""
    await session.execute(
        update(BrowserSession).where(BrowserSession.id == principal.session_id).values(authenticated_at=now())
    )
