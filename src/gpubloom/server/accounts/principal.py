"""Who sends this request, and may they? Every route under /api asks here unless it is on the public list.

A browser shows its session cookie and, to change anything, the session's CSRF token; a program shows an
API token, whose scopes must cover the method. Routes that manage the account itself ask for
`SessionPrincipal`: a leaked API token must not be able to make itself permanent.

What a handler can ask the app for, besides the database: its settings and its mailer.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, cast
from uuid import UUID

from fastapi import Depends, Request
from sqlalchemy import Select, select, update

from gpubloom.server.accounts.mail import Mailer
from gpubloom.server.accounts.sessions import find_session, read_session_cookie, set_session_cookie
from gpubloom.server.accounts.tables import ApiToken, BrowserSession, User
from gpubloom.server.audit import Actor
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database, database_of
from gpubloom.server.problems import Forbidden, NotSignedIn
from gpubloom.server.security.middleware import SAFE_METHODS
from gpubloom.server.security.secrets import fingerprint, looks_like_api_token
from gpubloom.server.settings import Settings

CSRF_HEADER = "X-CSRF-Token"
ALL_SCOPES = frozenset({"read", "write", "admin"})
_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Principal:
    """The person behind a request and how they proved it."""

    user: User
    scopes: frozenset[str]
    session_id: UUID | None
    api_token_id: UUID | None
    csrf_token: str | None
    ip_address: str | None

    @property
    def id(self) -> UUID:
        return self.user.id

    @property
    def actor(self) -> Actor:
        """This person, for the audit trail."""
        return Actor(self.id, self.ip_address)


def client_address(request: Request) -> str | None:
    """The address the request came from."""
    return request.client.host if request.client else None


async def authenticate(request: Request) -> Principal:
    """The principal of a request; raises when there is none or it may not use this method."""
    cached = getattr(request.state, "principal", None)
    if isinstance(cached, Principal):
        return cached
    principal = await find_principal(request)
    if principal is None:
        raise NotSignedIn
    if request.method not in SAFE_METHODS:
        _require_csrf(request, principal)
    needed = "read" if request.method in SAFE_METHODS else "write"
    if needed not in principal.scopes:
        raise Forbidden(
            f"This API token lacks the scope {needed!r}. Create a token with this scope.",
            code="scope_missing",
        )
    request.state.principal = principal
    return principal


async def find_principal(request: Request) -> Principal | None:
    """The principal of a request, when it has one; a wrong API token raises."""
    database = database_of(request)
    authorization = request.headers.get("authorization")
    if authorization is not None:
        return await _from_api_token(request, database, authorization)
    secret = read_session_cookie(request)
    if secret is None:
        return None
    found = await find_session(database, secret)
    if found is None:
        return None
    if found.new_secret is not None:
        set_session_cookie(request, found.new_secret)
    return Principal(
        user=found.user,
        scopes=ALL_SCOPES if found.user.role == "admin" else ALL_SCOPES - {"admin"},
        session_id=found.row.id,
        api_token_id=None,
        csrf_token=found.row.csrf_token,
        ip_address=client_address(request),
    )


async def _from_api_token(request: Request, database: Database, authorization: str) -> Principal:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not looks_like_api_token(token.strip()):
        raise NotSignedIn(
            "The Authorization header contains no valid API token. Send: Bearer bloom_…",
            code="invalid_api_token",
        )
    moment = now()
    async with database.read() as session:
        found = (
            await session.execute(
                select(ApiToken, User)
                .join(User, User.id == ApiToken.user_id)
                .where(ApiToken.fingerprint == fingerprint(token.strip()))
            )
        ).one_or_none()
    if found is None or found[1].disabled:
        raise NotSignedIn("This API token is invalid or was revoked.", code="invalid_api_token")
    row, user = found
    if row.expires_at <= moment:
        raise NotSignedIn("This API token has expired. Create a new one.", code="expired_api_token")
    if row.last_used_at is None or row.last_used_at + _USED_EVERY <= moment:
        async with database.write() as session:
            await session.execute(update(ApiToken).where(ApiToken.id == row.id).values(last_used_at=moment))
    scopes = frozenset(row.scopes.split())
    return Principal(
        user=user,
        # A demoted admin's old tokens lose what their owner lost.
        scopes=scopes if user.role == "admin" else scopes - {"admin"},
        session_id=None,
        api_token_id=row.id,
        csrf_token=None,
        ip_address=client_address(request),
    )


async def still_valid(database: Database, principal: Principal) -> bool:
    """Whether somebody who was let in a while ago, and still listens, would be let in now.

    Asked by id: a long-lived request still shows the cookie of its beginning, which by now may be a
    replaced one, and that looks like a stolen one.
    """
    proof: Select[object]
    if principal.session_id is not None:
        proof = select(BrowserSession.id).where(
            BrowserSession.id == principal.session_id, BrowserSession.expires > now()
        )
    else:
        proof = select(ApiToken.id).where(ApiToken.id == principal.api_token_id, ApiToken.expires_at > now())
    person = select(User.id).where(User.id == principal.id, User.disabled.is_(False))
    async with database.read() as session:
        return await session.scalar(proof) is not None and await session.scalar(person) is not None


def _require_csrf(request: Request, principal: Principal) -> None:
    if principal.csrf_token is None:
        return
    presented = request.headers.get(CSRF_HEADER, "")
    if not secrets.compare_digest(presented.encode(), principal.csrf_token.encode()):
        raise Forbidden(
            f"The {CSRF_HEADER} header is missing or wrong. Reload the page and try again.", code="csrf"
        )


CurrentPrincipal = Annotated[Principal, Depends(authenticate)]


def require_session(principal: Principal) -> None:
    """Raises for API tokens."""
    if principal.session_id is None:
        raise Forbidden("API tokens cannot do this. Sign in with a browser.", code="session_required")


async def _require_session(principal: CurrentPrincipal) -> Principal:
    require_session(principal)
    return principal


async def _require_admin(principal: CurrentPrincipal) -> Principal:
    if "admin" not in principal.scopes:
        raise Forbidden("Only admins can do this.", code="admin_required")
    return principal


SessionPrincipal = Annotated[Principal, Depends(_require_session)]
AdminPrincipal = Annotated[Principal, Depends(_require_admin)]


def _settings_of(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)


def _mailer_of(request: Request) -> Mailer:
    return cast("Mailer", request.app.state.mailer)


CurrentSettings = Annotated[Settings, Depends(_settings_of)]
CurrentMailer = Annotated[Mailer, Depends(_mailer_of)]
