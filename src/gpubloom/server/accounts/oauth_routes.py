"""The two addresses of signing in through a provider: leave, and come back."""

import json
import secrets
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import oauth
from gpubloom.server.accounts.cookies import set_session_cookie
from gpubloom.server.accounts.entry_routes import RATED
from gpubloom.server.accounts.principal import CurrentSettings, client_address
from gpubloom.server.accounts.registration import find_by_email, has_users, one_at_a_time
from gpubloom.server.accounts.sessions import open_session
from gpubloom.server.accounts.tables import LinkedAccount, User
from gpubloom.server.audit.service import record
from gpubloom.server.clock import now
from gpubloom.server.db.session import CurrentDatabase
from gpubloom.server.problems import NotFound
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/auth/oauth", tags=["accounts"], dependencies=RATED)

ATTEMPT_SECONDS = 600


def _provider(request: Request, name: str) -> oauth.Provider:
    provider: oauth.Provider | None = request.app.state.oauth.get(name)
    if provider is None:
        raise NotFound("Signing in through this provider is not set up here.")
    return provider


def _cookie(settings: Settings) -> str:
    return "__Host-bloom_oauth" if settings.secure else "bloom_oauth"


def _callback(settings: Settings, provider: str) -> str:
    return f"{settings.address}/api/auth/oauth/{provider}/callback"


def local_path(path: str) -> str:
    """A path of this site, or the dashboard: never an address that leads elsewhere."""
    harmless = path.isprintable() and "\\" not in path
    return path if harmless and path.startswith("/") and not path.startswith("//") else "/dashboard"


@router.get("/{provider}/start", status_code=303, response_class=RedirectResponse)
async def start(
    request: Request,
    provider: str,
    settings: CurrentSettings,
    next: str = "/dashboard",  # noqa: A002
) -> RedirectResponse:
    """Send the browser to the provider."""
    known = _provider(request, provider)
    attempt = oauth.new_attempt()
    response = RedirectResponse(
        oauth.authorize_link(known, attempt, _callback(settings, known.name)), status_code=303
    )
    response.set_cookie(
        _cookie(settings),
        json.dumps([known.name, attempt.state, attempt.verifier, local_path(next)]).encode().hex(),
        max_age=ATTEMPT_SECONDS,
        path="/",
        secure=settings.secure,
        httponly=True,
        samesite="lax",
    )
    return response


@router.get("/{provider}/callback", status_code=303, response_class=RedirectResponse)
async def come_back(
    request: Request,
    provider: str,
    settings: CurrentSettings,
    database: CurrentDatabase,
    state: str = "",
    code: str = "",
) -> RedirectResponse:
    """Take the provider's answer, and sign the browser in."""
    known = _provider(request, provider)
    try:
        attempt, destination = _attempt(request.cookies.get(_cookie(settings), ""), known.name)
        if not secrets.compare_digest(attempt.state.encode(), state.encode()):
            raise oauth.OAuthFailed("oauth_failed")
        if not code:
            raise oauth.OAuthFailed("oauth_denied")
        profile = await oauth.fetch_profile(
            known, attempt, code=code, callback=_callback(settings, known.name)
        )
        address = client_address(request)
        async with database.write() as session:
            user = await _user_of(session, settings, known.name, profile, address)
            opened = await open_session(
                session, user, ip_address=address, user_agent=request.headers.get("user-agent")
            )
            record(
                session,
                "user.signed_in",
                actor=user.id,
                subject=f"user:{user.id}",
                ip_address=address,
                provider=known.name,
            )
        set_session_cookie(request, opened.secret)
    except oauth.OAuthFailed as failure:
        destination = f"/auth?error={failure.code}"
    response = RedirectResponse(destination, status_code=303)
    response.delete_cookie(_cookie(settings), path="/", secure=settings.secure, httponly=True)
    return response


def _attempt(cookie: str, provider: str) -> tuple[oauth.Attempt, str]:
    try:
        name, state, verifier, destination = json.loads(bytes.fromhex(cookie))
        attempt = oauth.Attempt(state=str(state), verifier=str(verifier))
        attempt.state.encode()
    except (ValueError, TypeError, RecursionError) as error:
        # Not a cookie of this server's.
        raise oauth.OAuthFailed("oauth_failed") from error
    if name != provider:
        raise oauth.OAuthFailed("oauth_failed")
    return attempt, local_path(str(destination))


async def _user_of(
    session: AsyncSession, settings: Settings, provider: str, profile: oauth.Profile, address: str | None
) -> User:
    await one_at_a_time(session, profile.email)
    linked = await session.scalar(
        select(User)
        .join(LinkedAccount, LinkedAccount.user_id == User.id)
        .where(LinkedAccount.provider == provider, LinkedAccount.provider_account_id == profile.account_id)
    )
    if linked is not None:
        if linked.disabled:
            raise oauth.OAuthFailed("oauth_failed")
        return linked
    user = await find_by_email(session, profile.email)
    if user is None:
        # The first account comes from the printed link only: a provider does not make admins.
        if settings.signup == "closed" or not await has_users(session):
            raise oauth.OAuthFailed("signup_closed")
        user = User(id=uuid4(), name=profile.name, email=profile.email, email_verified=now())
        session.add(user)
        await session.flush()
        record(session, "user.signed_up", actor=None, subject=f"user:{user.id}", ip_address=address)
    elif user.disabled:
        raise oauth.OAuthFailed("oauth_failed")
    elif user.email_verified is None:
        # Somebody signed up with this address without proving it: their password must not open this account.
        user.password_hash = None
        user.email_verified = now()
    session.add(LinkedAccount(user_id=user.id, provider=provider, provider_account_id=profile.account_id))
    await session.flush()
    return user
