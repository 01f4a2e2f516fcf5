"""Signing in takes two steps when a person has a second factor; this is what lies between them.

The first step (password, sign-in provider, confirmed email address) opens no session. It stores a pending
sign-in and sends its secret as a cookie that is good for nothing but the second step, for ten minutes. The
second step spends it. A sign-in with a passkey alone begins with such a cookie as well, of nobody yet: it
holds the challenge.
"""

from datetime import timedelta
from uuid import uuid4

from fastapi import Request
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.devices import sign_browser_in
from gpubloom.server.accounts.principal import client_address
from gpubloom.server.accounts.schemas import Factor, SecondStep, SignedIn, UserOut
from gpubloom.server.accounts.second_factors import factors_of
from gpubloom.server.accounts.sessions import set_cookie
from gpubloom.server.accounts.tables import PendingSignIn, User
from gpubloom.server.audit import Actor, record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.problems import Gone
from gpubloom.server.security.secrets import fingerprint, new_secret
from gpubloom.server.settings import Settings

PENDING_LIFE = timedelta(minutes=10)


async def finish_first_step(
    session: AsyncSession, request: Request, user: User, *, provider: str | None = None
) -> SignedIn | SecondStep:
    """Sign a person in, or ask for their second factor."""
    factors = await factors_of(session, user.id)
    if not factors:
        return await _sign_in(session, request, user, provider=provider, factor=None)
    await begin(session, request, user, provider=provider)
    return SecondStep(second_factors=factors)


async def begin(
    session: AsyncSession, request: Request, user: User | None, *, provider: str | None = None
) -> PendingSignIn:
    """Store a pending sign-in and send its cookie."""
    await session.execute(delete(PendingSignIn).where(PendingSignIn.expires < now()))
    secret = new_secret()
    pending = PendingSignIn(
        id=uuid4(),
        user_id=None if user is None else user.id,
        fingerprint=fingerprint(secret),
        provider=provider,
        expires=now() + PENDING_LIFE,
    )
    session.add(pending)
    await session.flush()
    _set_cookie(request, secret)
    return pending


async def find_pending(database: Database, request: Request) -> PendingSignIn | None:
    """The pending sign-in of this browser."""
    secret = request.cookies.get(_cookie_name(request.app.state.settings))
    if not secret:
        return None
    async with database.read() as session:
        return await session.scalar(
            select(PendingSignIn).where(
                PendingSignIn.fingerprint == fingerprint(secret), PendingSignIn.expires > now()
            )
        )


def expired() -> Gone:
    """For a browser without a pending sign-in."""
    return Gone("This sign-in has expired. Start again.", code="sign_in_expired")


async def finish(
    session: AsyncSession, request: Request, pending: PendingSignIn, user: User, factor: Factor
) -> SignedIn:
    """Sign a person in after their second step, once: the pending sign-in is gone afterwards."""
    spent = await session.scalar(
        delete(PendingSignIn).where(PendingSignIn.id == pending.id).returning(PendingSignIn.id)
    )
    if spent is None or user.disabled:
        raise expired()
    _set_cookie(request, "")
    return await _sign_in(session, request, user, provider=pending.provider, factor=factor)


async def _sign_in(
    session: AsyncSession, request: Request, user: User, *, provider: str | None, factor: Factor | None
) -> SignedIn:
    address = client_address(request)
    opened = await sign_browser_in(request, session, user)
    details = {"provider": provider, "second_factor": factor}
    record(
        session,
        Actor(user.id, address),
        "user.signed_in",
        f"user:{user.id}",
        **{name: value for name, value in details.items() if value is not None},
    )
    return SignedIn(user=UserOut.model_validate(user), csrf_token=opened.row.csrf_token)


def _cookie_name(settings: Settings) -> str:
    return "__Host-bloom_sign_in" if settings.secure else "bloom_sign_in"


def _set_cookie(request: Request, secret: str) -> None:
    life = int(PENDING_LIFE.total_seconds()) if secret else 0
    name = _cookie_name(request.app.state.settings)
    set_cookie(request, name, secret, max_age=life, same_site="strict")
