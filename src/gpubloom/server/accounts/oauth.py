"""Signing in through GitHub or Google: the authorization-code flow with PKCE (authlib), and its two routes.

A short-lived cookie holds the attempt's state and PKCE verifier; the provider's answer must match the state.
Only email addresses that the provider has verified count, and the provider's tokens are never stored.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import httpx2
from authlib.integrations.httpx_client import AsyncOAuth2Client, OAuthError
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse
from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.egress import Policy
from gpubloom.egress.clients import async_transports
from gpubloom.server.accounts.devices import sign_browser_in
from gpubloom.server.accounts.entry_routes import RATED
from gpubloom.server.accounts.principal import CurrentSettings, client_address
from gpubloom.server.accounts.registration import find_by_email, has_users, one_at_a_time
from gpubloom.server.accounts.schemas import Email
from gpubloom.server.accounts.tables import LinkedAccount, User
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.problems import NotFound
from gpubloom.server.settings import Settings

_EMAIL: TypeAdapter[str] = TypeAdapter(Email)

ProviderName = Literal["github", "google"]
TIMEOUT_SECONDS = 15

router = APIRouter(prefix="/auth/oauth", tags=["accounts"], dependencies=RATED)
ATTEMPT_SECONDS = 600


class OAuthFailed(Exception):
    """The sign-in failed; `code` goes to the sign-in page."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Provider:
    """The endpoints of a provider, and this server's client id and secret there."""

    name: ProviderName
    client_id: str
    client_secret: str
    authorize_url: str
    token_url: str
    profile_url: str
    scope: str
    emails_url: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One attempt to sign in, kept in the browser until the provider answers."""

    state: str
    verifier: str


@dataclass(frozen=True)
class Profile:
    """The account that the provider names."""

    account_id: str
    email: str
    name: str


def configured_providers(settings: Settings) -> dict[ProviderName, Provider]:
    """The providers whose client id and secret are set."""
    providers: dict[ProviderName, Provider] = {}
    if settings.github_client_id and settings.github_client_secret:
        providers["github"] = Provider(
            name="github",
            client_id=settings.github_client_id,
            client_secret=settings.github_client_secret.get_secret_value(),
            authorize_url="https://github.com/login/oauth/authorize",
            token_url="https://github.com/login/oauth/access_token",  # noqa: S106 - an address
            profile_url="https://api.github.com/user",
            emails_url="https://api.github.com/user/emails",
            scope="read:user user:email",
        )
    if settings.google_client_id and settings.google_client_secret:
        providers["google"] = Provider(
            name="google",
            client_id=settings.google_client_id,
            client_secret=settings.google_client_secret.get_secret_value(),
            authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
            token_url="https://oauth2.googleapis.com/token",  # noqa: S106 - an address
            profile_url="https://openidconnect.googleapis.com/v1/userinfo",
            scope="openid email profile",
        )
    return providers


def new_attempt() -> Attempt:
    """Fresh random state and PKCE verifier."""
    return Attempt(state=secrets.token_urlsafe(24), verifier=secrets.token_urlsafe(48))


def _client(provider: Provider, callback: str) -> Any:
    return AsyncOAuth2Client(
        provider.client_id,
        provider.client_secret,
        token_endpoint_auth_method="client_secret_post",  # noqa: S106 - a method
        code_challenge_method="S256",
        scope=provider.scope,
        redirect_uri=callback,
        timeout=TIMEOUT_SECONDS,
        follow_redirects=False,
        # Ours, or the operator's.
        **async_transports(Policy.of_operator(provider.token_url, provider.profile_url)),
    )


async def authorize_link(provider: Provider, attempt: Attempt, callback: str) -> str:
    """The provider's page that asks for permission."""
    async with _client(provider, callback) as client:
        link, _ = client.create_authorization_url(
            provider.authorize_url, state=attempt.state, code_verifier=attempt.verifier
        )
    return str(link)


async def fetch_profile(provider: Provider, attempt: Attempt, *, code: str, callback: str) -> Profile:
    """Exchange the code for a token, read the profile with it, and drop the token."""
    try:
        async with _client(provider, callback) as client:
            await client.fetch_token(provider.token_url, code=code, code_verifier=attempt.verifier)
            profile = (await client.get(provider.profile_url)).raise_for_status().json()
            emails: Any = []
            if provider.emails_url is not None:
                emails = (await client.get(provider.emails_url)).raise_for_status().json()
        return _read_profile(provider, profile, emails)
    except (OAuthError, httpx2.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OAuthFailed("oauth_failed") from error


def _read_profile(provider: Provider, profile: Mapping[str, Any], emails: Any) -> Profile:
    if provider.name == "github":
        confirmed = [entry["email"] for entry in emails if entry["primary"] and entry["verified"]]
        account_id = str(profile["id"])
    else:
        confirmed = [profile["email"]] if profile.get("email_verified") is True else []
        account_id = str(profile["sub"])
    if not confirmed:
        raise OAuthFailed("oauth_email_unverified")
    email = _EMAIL.validate_python(confirmed[0])
    # A name is one line of printable characters here.
    name = "".join(
        character for character in str(profile.get("name") or "") if character.isprintable()
    ).strip()
    return Profile(account_id=account_id, email=email, name=(name or email.partition("@")[0])[:120])


def _provider(request: Request, name: str) -> Provider:
    provider: Provider | None = request.app.state.oauth.get(name)
    if provider is None:
        raise NotFound("Sign-in with this provider is not set up on this server.", code="provider_not_set_up")
    return provider


def _cookie(settings: Settings) -> str:
    return "__Host-bloom_oauth" if settings.secure else "bloom_oauth"


def _callback(settings: Settings, provider: str) -> str:
    return f"{settings.address}/api/auth/oauth/{provider}/callback"


def local_path(path: str) -> str:
    """A path of this site, or the dashboard; never an address of another site."""
    harmless = path.isprintable() and "\\" not in path
    return path if harmless and path.startswith("/") and not path.startswith("//") else "/dashboard"


@router.get("/{provider}/start", status_code=303, response_class=RedirectResponse)
async def start(
    request: Request,
    provider: str,
    settings: CurrentSettings,
    next: str = "/dashboard",  # noqa: A002
) -> RedirectResponse:
    """Redirect the browser to the sign-in provider."""
    known = _provider(request, provider)
    attempt = new_attempt()
    link = await authorize_link(known, attempt, _callback(settings, known.name))
    response = RedirectResponse(link, status_code=303)
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
    """Handle the answer of the sign-in provider, and sign in."""
    known = _provider(request, provider)
    try:
        attempt, destination = _attempt(request.cookies.get(_cookie(settings), ""), known.name)
        if not secrets.compare_digest(attempt.state.encode(), state.encode()):
            raise OAuthFailed("oauth_failed")
        if not code:
            raise OAuthFailed("oauth_denied")
        profile = await fetch_profile(known, attempt, code=code, callback=_callback(settings, known.name))
        address = client_address(request)
        async with database.write() as session:
            user = await _user_of(session, settings, known.name, profile, address)
            await sign_browser_in(request, session, user)
            record(
                session,
                "user.signed_in",
                actor=user.id,
                subject=f"user:{user.id}",
                ip_address=address,
                provider=known.name,
            )
    except OAuthFailed as failure:
        destination = f"/auth?error={failure.code}"
    response = RedirectResponse(destination, status_code=303)
    response.delete_cookie(_cookie(settings), path="/", secure=settings.secure, httponly=True)
    return response


def _attempt(cookie: str, provider: str) -> tuple[Attempt, str]:
    try:
        name, state, verifier, destination = json.loads(bytes.fromhex(cookie))
        attempt = Attempt(state=str(state), verifier=str(verifier))
        attempt.state.encode()
    except (ValueError, TypeError, RecursionError) as error:
        # Not a cookie of this server.
        raise OAuthFailed("oauth_failed") from error
    if name != provider:
        raise OAuthFailed("oauth_failed")
    return attempt, local_path(str(destination))


async def _user_of(
    session: AsyncSession, settings: Settings, provider: str, profile: Profile, address: str | None
) -> User:
    await one_at_a_time(session, profile.email)
    linked = await session.scalar(
        select(User)
        .join(LinkedAccount, LinkedAccount.user_id == User.id)
        .where(LinkedAccount.provider == provider, LinkedAccount.provider_account_id == profile.account_id)
    )
    if linked is not None:
        if linked.disabled:
            raise OAuthFailed("oauth_failed")
        return linked
    user = await find_by_email(session, profile.email)
    if user is None:
        # The first account comes from the printed link only: a provider must not create an admin.
        if settings.signup == "closed" or not await has_users(session):
            raise OAuthFailed("signup_closed")
        user = User(id=uuid4(), name=profile.name, email=profile.email, email_verified=now())
        session.add(user)
        await session.flush()
        record(session, "user.signed_up", actor=None, subject=f"user:{user.id}", ip_address=address)
    elif user.disabled:
        raise OAuthFailed("oauth_failed")
    elif user.email_verified is None:
        # Somebody signed up with this address without verifying it: their password must not open the account.
        user.password_hash = None
        user.email_verified = now()
    session.add(LinkedAccount(user_id=user.id, provider=provider, provider_account_id=profile.account_id))
    await session.flush()
    return user
