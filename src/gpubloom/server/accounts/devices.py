"""Browsers in which a person signed in before, known by a cookie of their own.

The cookie signs nobody in. It only tells the owner's browser from a stranger's while somebody guesses
passwords: tries from a known browser are counted by themselves, so no stranger can use them up. It stays
after signing out, and is forgotten with a new password.
"""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request

from gpubloom.server.accounts.sessions import OpenedSession, open_session, set_cookie, set_session_cookie
from gpubloom.server.accounts.tables import KnownDevice, User
from gpubloom.server.clock import now
from gpubloom.server.security.secrets import fingerprint, new_secret
from gpubloom.server.settings import Settings

LIFE = timedelta(days=180)


def _cookie_name(settings: Settings) -> str:
    return "__Host-bloom_device" if settings.secure else "bloom_device"


def read_device_cookie(request: Request) -> str | None:
    """The secret of this browser; one browser has one, whoever signs in with it."""
    return request.cookies.get(_cookie_name(request.app.state.settings)) or None


async def is_known_device(session: AsyncSession, user_id: UUID, secret: str) -> bool:
    """Whether this person signed in with this browser before."""
    return await _find(session, user_id, secret) is not None


async def _find(session: AsyncSession, user_id: UUID, secret: str) -> KnownDevice | None:
    return await session.scalar(
        select(KnownDevice).where(
            KnownDevice.user_id == user_id,
            KnownDevice.fingerprint == fingerprint(secret),
            KnownDevice.expires > now(),
        )
    )


async def remember_device(session: AsyncSession, request: Request, user: User) -> None:
    """Know this browser from now on; a person has just signed in with it."""
    await session.execute(delete(KnownDevice).where(KnownDevice.expires < now()))
    secret = read_device_cookie(request)
    device = await _find(session, user.id, secret) if secret is not None else None
    if secret is None or device is None:
        # Never a secret that came from outside: somebody may have planted it.
        secret = new_secret()
        device = KnownDevice(user_id=user.id, fingerprint=fingerprint(secret))
        session.add(device)
    device.expires = now() + LIFE
    name, life = _cookie_name(request.app.state.settings), int(LIFE.total_seconds())
    set_cookie(request, name, secret, max_age=life, same_site="lax")


async def sign_browser_in(request: Request, session: AsyncSession, user: User) -> OpenedSession:
    """Open a session for a person who has proved who they are, and send its cookie."""
    opened = await open_session(
        session,
        user,
        ip_address=request.client.host if request.client else None,
        user_agent=request.headers.get("user-agent"),
    )
    await remember_device(session, request, user)
    set_session_cookie(request, opened.secret)
    return opened


async def forget_devices(session: AsyncSession, user_id: UUID, *, but: str | None = None) -> None:
    """Forget the browsers of a person, perhaps but one."""
    statement = delete(KnownDevice).where(KnownDevice.user_id == user_id)
    if but is not None:
        statement = statement.where(KnownDevice.fingerprint != fingerprint(but))
    await session.execute(statement)
