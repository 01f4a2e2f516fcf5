"""Signing in through a sign-in provider, and linking an account there to one here.

A short-lived cookie holds the attempt's state, PKCE verifier and nonce, which the provider's answer must
match. An email address never links anything by itself: who has an account here signs in to it first and then
links the other one, from the settings. An address at a provider opens no account.
"""

import json
import secrets
from datetime import timedelta
from urllib.parse import urlencode
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.entry_routes import RATED
from gpubloom.server.accounts.oauth_providers import (
    Attempt,
    OAuthFailed,
    Profile,
    Provider,
    authorize_link,
    fetch_profile,
    new_attempt,
    policy_of,
)
from gpubloom.server.accounts.principal import (
    CurrentSettings,
    Principal,
    SessionPrincipal,
    client_address,
    find_principal,
)
from gpubloom.server.accounts.reauthentication import FreshPrincipal
from gpubloom.server.accounts.registration import find_by_email, has_users, one_at_a_time, revoke_links
from gpubloom.server.accounts.schemas import (
    LinkedAccountOut,
    LinkedAccounts,
    LinkStart,
    NewLink,
    SecondStep,
)
from gpubloom.server.accounts.second_factors import factors_of
from gpubloom.server.accounts.second_step import finish_first_step
from gpubloom.server.accounts.sessions import set_cookie
from gpubloom.server.accounts.tables import LinkedAccount, User
from gpubloom.server.audit import Actor, record, record_apart
from gpubloom.server.clock import now
from gpubloom.server.db.database import CurrentDatabase, Database, ReadSession, WriteSession
from gpubloom.server.problems import Conflict, NotFound, NotSignedIn
from gpubloom.server.security.secrets import fingerprint
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/auth/oauth", tags=["accounts"], dependencies=RATED)
linked_router = APIRouter(prefix="/me/linked-accounts", tags=["accounts"])

ATTEMPT_LIFE = timedelta(minutes=10)
SETTINGS_PAGE = "/settings"


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


async def _leave(
    request: Request, provider: Provider, settings: Settings, *, to: str, linking: str | None
) -> str:
    """The provider's page; the attempt goes into a cookie. `linking`: the session that asked for a link."""
    attempt = new_attempt()
    link = await authorize_link(provider, attempt, _callback(settings, provider.name))
    kept = [provider.name, attempt.state, attempt.verifier, attempt.nonce, to, linking]
    set_cookie(
        request,
        _cookie(settings),
        json.dumps(kept).encode().hex(),
        max_age=int(ATTEMPT_LIFE.total_seconds()),
        same_site="lax",
    )
    return link


def _read_cookie(cookie: str, provider: str) -> tuple[Attempt, str, str | None]:
    try:
        name, state, verifier, nonce, destination, linking = json.loads(bytes.fromhex(cookie))
        attempt = Attempt(state=str(state), verifier=str(verifier), nonce=str(nonce))
        attempt.state.encode()
        session_proof = None if linking is None else str(linking)
    except (ValueError, TypeError, RecursionError) as error:
        # Not a cookie of this server.
        raise OAuthFailed("oauth_failed") from error
    if name != provider:
        raise OAuthFailed("oauth_failed")
    return attempt, local_path(str(destination)), session_proof


@router.get("/{provider}/start", status_code=303, response_class=RedirectResponse)
async def start(
    request: Request,
    provider: str,
    settings: CurrentSettings,
    next: str = "/dashboard",  # noqa: A002
) -> RedirectResponse:
    """Redirect the browser to the sign-in provider."""
    known = _provider(request, provider)
    try:
        link = await _leave(request, known, settings, to=local_path(next), linking=None)
    except OAuthFailed as failure:
        link = f"/auth?error={failure.code}"
    return RedirectResponse(link, status_code=303)


@router.get("/{provider}/callback", status_code=303, response_class=RedirectResponse)
async def come_back(
    request: Request,
    provider: str,
    settings: CurrentSettings,
    database: CurrentDatabase,
    state: str = "",
    code: str = "",
    iss: str | None = None,
) -> RedirectResponse:
    """Handle the answer of the sign-in provider: sign in, or link the account there to yours."""
    known = _provider(request, provider)
    page = "/auth"
    try:
        attempt, destination, linking = _read_cookie(request.cookies.get(_cookie(settings), ""), known.name)
        page = "/auth" if linking is None else SETTINGS_PAGE
        if not secrets.compare_digest(attempt.state.encode(), state.encode()):
            raise OAuthFailed("oauth_failed")
        if iss is not None and known.issuer is not None and iss != known.issuer:
            raise OAuthFailed("oauth_failed")
        if not code:
            raise OAuthFailed("oauth_denied")
        profile = await fetch_profile(known, attempt, code=code, callback=_callback(settings, known.name))
        if linking is None:
            needs_more, newly_linked = await _sign_in(request, database, settings, known.name, profile)
            if needs_more:
                destination = f"/auth/second-factor?{urlencode({'next': destination})}"
        else:
            newly_linked = await _link(request, database, known.name, profile, linking)
        if newly_linked is not None and profile.picture is not None:
            # Once: who removes it, or chooses another, is not given it again at the next sign-in.
            await request.app.state.take_over_picture(
                database, settings, policy_of(known), newly_linked, profile.picture
            )
    except OAuthFailed as failure:
        await record_apart(
            database,
            Actor(None, client_address(request)),
            "user.sign_in_failed",
            "user:unknown",
            provider=known.name,
            reason=failure.code,
        )
        destination = f"{page}?error={failure.code}"
    set_cookie(request, _cookie(settings), "", max_age=0, same_site="lax")
    return RedirectResponse(destination, status_code=303)


async def _sign_in(
    request: Request, database: Database, settings: Settings, provider: str, profile: Profile
) -> tuple[bool, UUID | None]:
    """Sign in; says whether a second factor is still to be shown, and who is newly linked, if anybody."""
    async with database.write() as session:
        user, is_new = await _user_of(session, settings, provider, profile, client_address(request))
        reached = await finish_first_step(session, request, user, provider=provider)
        newly_linked = user.id if is_new else None
    return isinstance(reached, SecondStep), newly_linked


async def _user_of(
    session: AsyncSession, settings: Settings, provider: str, profile: Profile, address: str | None
) -> tuple[User, bool]:
    """The person, and whether their account at the provider is newly linked."""
    linked = await _linked_user(session, provider, profile)
    if linked is not None:
        if linked.disabled:
            raise OAuthFailed("oauth_failed")
        return linked, False
    if profile.email is None:
        raise OAuthFailed("oauth_email_unverified")
    await one_at_a_time(session, profile.email)
    # Somebody who came twice at once waited above.
    linked = await _linked_user(session, provider, profile)
    if linked is not None:
        return linked, False
    user = await find_by_email(session, profile.email)
    if user is None:
        # The first account comes from the printed link only: a provider must not create an admin.
        if settings.signup == "closed" or not await has_users(session):
            raise OAuthFailed("signup_closed")
        user = User(id=uuid4(), name=profile.name, email=profile.email, email_verified=now())
        session.add(user)
        await session.flush()
        record(session, Actor(None, address), "user.signed_up", f"user:{user.id}")
    elif user.disabled:
        raise OAuthFailed("oauth_failed")
    elif user.email_verified is not None:
        raise OAuthFailed("oauth_link_required")
    else:
        # Somebody signed up with this address without verifying it: it is nobody's account yet, and their
        # password must not open it.
        user.password_hash = None
        user.email_verified = now()
        await revoke_links(session, "verify", user.email)
    _add_link(session, user.id, provider, profile, address)
    await session.flush()
    return user, True


async def _linked_user(session: AsyncSession, provider: str, profile: Profile) -> User | None:
    return await session.scalar(
        select(User)
        .join(LinkedAccount, LinkedAccount.user_id == User.id)
        .where(LinkedAccount.provider == provider, LinkedAccount.provider_account_id == profile.account_id)
    )


def _add_link(
    session: AsyncSession, user_id: UUID, provider: str, profile: Profile, address: str | None
) -> None:
    session.add(
        LinkedAccount(
            user_id=user_id,
            provider=provider,
            provider_account_id=profile.account_id,
            email=profile.email,
        )
    )
    record(session, Actor(user_id, address), "user.account_linked", f"user:{user_id}", provider=provider)


async def _link(
    request: Request, database: Database, provider: str, profile: Profile, linking: str
) -> UUID | None:
    """Link an account; returns who is newly linked, if anybody."""
    try:
        principal = await find_principal(request)
    except NotSignedIn:
        principal = None
    # A planted cookie cannot link anything: only the session that asked for the link knows its CSRF token.
    if principal is None or principal.csrf_token is None or _session_proof(principal) != linking:
        raise OAuthFailed("oauth_failed")
    user_id = principal.id
    async with database.write() as session:
        await one_at_a_time(session, f"{provider} {profile.account_id}")
        linked = await _linked_user(session, provider, profile)
        if linked is not None and linked.id != user_id:
            raise OAuthFailed("oauth_account_taken")
        if linked is None:
            _add_link(session, user_id, provider, profile, principal.ip_address)
    return user_id if linked is None else None


def _session_proof(principal: Principal) -> str:
    return fingerprint(principal.csrf_token or "")


@linked_router.get("")
async def list_linked_accounts(principal: SessionPrincipal, session: ReadSession) -> LinkedAccounts:
    """List your accounts at sign-in providers with which you can sign in."""
    return LinkedAccounts(
        items=[
            LinkedAccountOut.model_validate(row, extra="ignore")
            for row in await _links(session, principal.id)
        ]
    )


@linked_router.post("")
async def link_account(
    request: Request, body: NewLink, principal: FreshPrincipal, settings: CurrentSettings
) -> LinkStart:
    """Start to link your account at a sign-in provider. Go to the page that the response names."""
    known = _provider(request, body.provider)
    try:
        link = await _leave(
            request,
            known,
            settings,
            to=f"{SETTINGS_PAGE}?linked={known.name}",
            linking=_session_proof(principal),
        )
    except OAuthFailed as failure:
        raise Conflict(
            "The sign-in provider does not answer. Try again later.", code=failure.code
        ) from failure
    return LinkStart(address=link)


@linked_router.delete("/{link_id}", status_code=204)
async def unlink_account(
    request: Request, link_id: UUID, principal: FreshPrincipal, session: WriteSession
) -> None:
    """Unlink an account at a sign-in provider. Your last way to sign in stays."""
    # Locked, so that two requests at once cannot each leave the other's link as the last one.
    user = await session.scalar(select(User).where(User.id == principal.id).with_for_update())
    assert user is not None
    links = await _links(session, principal.id)
    unwanted = next((row for row in links if row.id == link_id), None)
    if unwanted is None:
        raise NotFound("This linked account does not exist.")
    usable = [row for row in links if row.id != link_id and row.provider in request.app.state.oauth]
    if user.password_hash is None and not usable and "passkey" not in await factors_of(session, user.id):
        raise Conflict(
            "This is your only way to sign in. Set a password first: sign out, then"
            " choose 'Forgot your password?'.",
            code="last_way_in",
        )
    await session.delete(unwanted)
    record(
        session, principal.actor, "user.account_unlinked", f"user:{principal.id}", provider=unwanted.provider
    )


async def _links(session: AsyncSession, user_id: UUID) -> list[LinkedAccount]:
    rows = await session.scalars(
        select(LinkedAccount)
        .where(LinkedAccount.user_id == user_id)
        .order_by(LinkedAccount.created_at, LinkedAccount.id)
    )
    return list(rows)
