"""Browser sessions and their cookie: opaque, stored as fingerprints, and renewed while they are used.

The rule that makes renewal safe: a session has a current secret and, now and then, a next one. The next one
is sent to the browser while the current one still works; it takes over when the browser first uses it. So a
lost response signs nobody out. The replaced secret works for a minute more, for requests that were already
under way; after that, somebody else holds a copy, and the whole session ends.

Over TLS the cookie's name begins with `__Host-`, which makes browsers refuse it from any other host or path.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpubloom.server.accounts.tables import BrowserSession, PendingSignIn, User
from gpubloom.server.audit import Actor, record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.security.secrets import fingerprint, new_secret
from gpubloom.server.settings import Settings

IDLE_LIFE = timedelta(days=14)
LONGEST_LIFE = timedelta(days=90)
RENEW_AFTER = timedelta(hours=1)
RESEND_AFTER = timedelta(minutes=5)
GRACE = timedelta(minutes=1)
SEEN_EVERY = timedelta(minutes=5)

_NEW_COOKIES = "new_cookies"


@dataclass(frozen=True)
class OpenedSession:
    """A new session and the secret that goes into the cookie."""

    row: BrowserSession
    secret: str


@dataclass(frozen=True)
class FoundSession:
    """A session that a request presented; `new_secret` is to be sent back when there is one."""

    row: BrowserSession
    user: User
    new_secret: str | None = None


async def open_session(
    session: AsyncSession, user: User, *, ip_address: str | None, user_agent: str | None
) -> OpenedSession:
    """Sign a browser in; sessions that have ended make room."""
    await session.execute(delete(BrowserSession).where(BrowserSession.expires < now()))
    secret = new_secret()
    row = BrowserSession(
        user_id=user.id,
        fingerprint=fingerprint(secret),
        csrf_token=new_secret(),
        authenticated_at=now(),
        expires=now() + IDLE_LIFE,
        ip_address=ip_address,
        user_agent=(user_agent or "")[:300] or None,
    )
    session.add(row)
    return OpenedSession(row, secret)


async def find_session(database: Database, secret: str) -> FoundSession | None:
    """The session that a cookie's secret belongs to, renewed when it is time; None when it is not valid."""
    presented = fingerprint(secret)
    moment = now()
    async with database.read() as session:
        found = (
            await session.execute(
                select(BrowserSession, User)
                .join(User, User.id == BrowserSession.user_id)
                .where(
                    or_(
                        BrowserSession.fingerprint == presented,
                        BrowserSession.next_fingerprint == presented,
                        BrowserSession.previous_fingerprint == presented,
                    )
                )
            )
        ).one_or_none()
    if found is None:
        return None
    row, user = found
    if row.expires <= moment or row.created_at + LONGEST_LIFE <= moment or user.disabled:
        return None
    if presented == row.previous_fingerprint:
        if row.renewed_at + GRACE > moment:
            return FoundSession(row, user)
        await _end_stolen(database, row)
        return None
    return FoundSession(row, user, await _keep_fresh(database, row, presented))


async def _keep_fresh(database: Database, row: BrowserSession, presented: str) -> str | None:
    moment = now()
    mine = BrowserSession.id == row.id
    if presented == row.next_fingerprint:
        async with database.write() as session:
            await session.execute(
                update(BrowserSession)
                .where(mine, BrowserSession.next_fingerprint == presented)
                .values(
                    fingerprint=presented,
                    previous_fingerprint=row.fingerprint,
                    next_fingerprint=None,
                    next_issued_at=None,
                    renewed_at=moment,
                    last_seen_at=moment,
                    expires=moment + IDLE_LIFE,
                )
            )
        return None
    due = row.renewed_at + RENEW_AFTER <= moment
    if due and (row.next_issued_at is None or row.next_issued_at + RESEND_AFTER <= moment):
        secret = new_secret()
        async with database.write() as session:
            renewed = await session.execute(
                update(BrowserSession)
                # Of several requests at once, one renews.
                .where(mine, BrowserSession.next_fingerprint.is_not_distinct_from(row.next_fingerprint))
                .where(BrowserSession.fingerprint == presented)
                .values(next_fingerprint=fingerprint(secret), next_issued_at=moment, last_seen_at=moment)
                .returning(BrowserSession.id)
            )
            return secret if renewed.one_or_none() is not None else None
    if row.last_seen_at + SEEN_EVERY <= moment:
        async with database.write() as session:
            await session.execute(update(BrowserSession).where(mine).values(last_seen_at=moment))
    return None


async def _end_stolen(database: Database, row: BrowserSession) -> None:
    async with database.write() as session:
        await session.execute(delete(BrowserSession).where(BrowserSession.id == row.id))
        record(session, Actor(row.user_id, row.ip_address), "session.reused_secret", f"session:{row.id}")


async def list_sessions(session: AsyncSession, user_id: UUID) -> list[BrowserSession]:
    """A person's living sessions, the one seen last first."""
    moment = now()
    rows = await session.scalars(
        select(BrowserSession)
        .where(BrowserSession.user_id == user_id)
        .where(BrowserSession.expires > moment, BrowserSession.created_at > moment - LONGEST_LIFE)
        .order_by(BrowserSession.last_seen_at.desc())
    )
    return list(rows)


async def end_session(session: AsyncSession, user_id: UUID, session_id: UUID) -> bool:
    """End one of a person's sessions; says whether there was one."""
    ended = await session.execute(
        delete(BrowserSession)
        .where(BrowserSession.id == session_id, BrowserSession.user_id == user_id)
        .returning(BrowserSession.id)
    )
    return ended.one_or_none() is not None


async def end_all_sessions(session: AsyncSession, user_id: UUID, *, but: UUID | None = None) -> None:
    """End a person's sessions everywhere, perhaps but one, and the sign-ins that are under way."""
    await session.execute(delete(PendingSignIn).where(PendingSignIn.user_id == user_id))
    statement = delete(BrowserSession).where(BrowserSession.user_id == user_id)
    if but is not None:
        statement = statement.where(BrowserSession.id != but)
    await session.execute(statement)


def cookie_name(settings: Settings) -> str:
    """The name of the session cookie."""
    return "__Host-bloom_session" if settings.secure else "bloom_session"


def read_session_cookie(request: Request) -> str | None:
    """The secret a browser presents."""
    return request.cookies.get(cookie_name(request.app.state.settings)) or None


def set_session_cookie(request: Request, secret: str) -> None:
    """Send a secret with whatever response this request gets; an empty one clears the cookie."""
    set_cookie(
        request,
        cookie_name(request.app.state.settings),
        secret,
        max_age=int(LONGEST_LIFE.total_seconds()) if secret else 0,
        same_site="lax",
    )


def set_cookie(
    request: Request, name: str, value: str, *, max_age: int, same_site: Literal["lax", "strict"]
) -> None:
    """Send a cookie with whatever response this request gets. Scripts cannot read it."""
    carrier = Response()
    carrier.set_cookie(
        name,
        value,
        max_age=max_age,
        path="/",
        secure=request.app.state.settings.secure,
        httponly=True,
        samesite=same_site,
    )
    cookies = getattr(request.state, _NEW_COOKIES, {})
    setattr(request.state, _NEW_COOKIES, {**cookies, name: carrier.headers["set-cookie"]})


class SessionCookie:
    """ASGI middleware that writes cookies; works for every response, errors and files included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                for cookie in scope.get("state", {}).get(_NEW_COOKIES, {}).values():
                    MutableHeaders(scope=message).append("Set-Cookie", cookie)
            await send(message)

        await self.app(scope, receive, with_cookie)
