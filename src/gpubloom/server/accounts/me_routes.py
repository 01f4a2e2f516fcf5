"""A signed-in person's own account: profile, password, sessions, API tokens.

API tokens are shown once, when they are made, and are limited in time and scope.
"""

from datetime import timedelta
from uuid import UUID, uuid4

from fastapi import APIRouter, BackgroundTasks, Request
from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import passwords, sessions
from gpubloom.server.accounts.devices import read_device_cookie
from gpubloom.server.accounts.principal import (
    CurrentMailer,
    CurrentPrincipal,
    CurrentSettings,
    Principal,
    SessionPrincipal,
)
from gpubloom.server.accounts.reauthentication import FreshPrincipal
from gpubloom.server.accounts.schemas import (
    ApiTokenOut,
    ApiTokens,
    ChangePassword,
    CreatedApiToken,
    NewApiToken,
    ProfileChange,
    Scope,
    SessionOut,
    Sessions,
    UserOut,
)
from gpubloom.server.accounts.sessions import set_session_cookie
from gpubloom.server.accounts.tables import ApiToken, User
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.security.secrets import API_TOKEN_PREFIX, fingerprint, new_api_token

router = APIRouter(tags=["accounts"])

MOST_TOKENS = 50


@router.post("/auth/sign-out", status_code=204)
async def sign_out(request: Request, principal: SessionPrincipal, session: WriteSession) -> None:
    """Sign out this browser."""
    assert principal.session_id is not None
    await sessions.end_session(session, principal.id, principal.session_id)
    record(session, principal.actor, "user.signed_out", f"user:{principal.id}")
    set_session_cookie(request, "")


@router.get("/me")
async def read_me(principal: CurrentPrincipal) -> UserOut:
    """Return the signed-in user."""
    return UserOut.model_validate(principal.user)


@router.patch("/me")
async def change_profile(body: ProfileChange, principal: SessionPrincipal, session: WriteSession) -> UserOut:
    """Change your profile."""
    user = await session.scalar(select(User).where(User.id == principal.id))
    assert user is not None
    user.name = body.name
    await session.flush()
    record(session, principal.actor, "user.profile_changed", f"user:{principal.id}", name=user.name)
    return UserOut.model_validate(user)


@router.post("/me/password", status_code=204)
async def change_password(
    request: Request,
    body: ChangePassword,
    principal: FreshPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> None:
    """Change your password.

    Other browsers are signed out and, unless you keep them, all API tokens revoked.
    """
    mail = await passwords.change_password(
        database,
        settings,
        principal.user,
        current=body.current_password.get_secret_value(),
        new=body.new_password.get_secret_value(),
        keep_tokens=body.keep_tokens,
        session_id=principal.session_id,
        device=read_device_cookie(request),
        ip_address=principal.ip_address,
    )
    after.add_task(mailer.send, mail)


@router.get("/me/sessions")
async def list_sessions(principal: SessionPrincipal, session: ReadSession) -> Sessions:
    """List the browsers in which you are signed in."""
    rows = await sessions.list_sessions(session, principal.id)
    return Sessions(
        items=[
            SessionOut(
                id=row.id,
                current=row.id == principal.session_id,
                created_at=row.created_at,
                last_seen_at=row.last_seen_at,
                expires_at=min(row.expires, row.created_at + sessions.LONGEST_LIFE),
                ip_address=row.ip_address,
                user_agent=row.user_agent,
            )
            for row in rows
        ]
    )


@router.delete("/me/sessions", status_code=204)
async def end_other_sessions(principal: SessionPrincipal, session: WriteSession) -> None:
    """Sign out all other browsers."""
    await sessions.end_all_sessions(session, principal.id, but=principal.session_id)
    record(session, principal.actor, "session.ended_others", f"user:{principal.id}")


@router.delete("/me/sessions/{session_id}", status_code=204)
async def end_session(session_id: UUID, principal: SessionPrincipal, session: WriteSession) -> None:
    """Sign out one browser."""
    if not await sessions.end_session(session, principal.id, session_id):
        raise NotFound("This session does not exist.")
    record(session, principal.actor, "session.ended", f"session:{session_id}")


def _token_out(row: ApiToken) -> ApiTokenOut:
    return ApiTokenOut.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "prefix": row.prefix,
            "scopes": row.scopes.split(),
            "created_at": row.created_at,
            "expires_at": row.expires_at,
            "last_used_at": row.last_used_at,
        }
    )


@router.get("/me/tokens")
async def list_tokens(principal: SessionPrincipal, session: ReadSession) -> ApiTokens:
    """List your API tokens, without their secrets."""
    rows = await list_api_tokens(session, principal.id)
    return ApiTokens(items=[_token_out(row) for row in rows])


@router.post("/me/tokens", status_code=201)
async def create_token(
    body: NewApiToken, principal: FreshPrincipal, session: WriteSession
) -> CreatedApiToken:
    """Create an API token. Only this response contains the token."""
    token, row = await create_api_token(
        session, principal, name=body.name, scopes=body.scopes, days=body.expires_in_days
    )
    return CreatedApiToken(token=token, api_token=_token_out(row))


@router.delete("/me/tokens/{token_id}", status_code=204)
async def revoke_token(token_id: UUID, principal: SessionPrincipal, session: WriteSession) -> None:
    """Revoke an API token."""
    await revoke_api_token(session, principal, token_id)


async def list_api_tokens(session: AsyncSession, user_id: UUID) -> list[ApiToken]:
    """A user's tokens, newest first. Expired tokens stay listed until they are revoked."""
    rows = await session.scalars(
        select(ApiToken).where(ApiToken.user_id == user_id).order_by(ApiToken.created_at.desc(), ApiToken.id)
    )
    return list(rows)


async def create_api_token(
    session: AsyncSession, principal: Principal, *, name: str, scopes: list[Scope], days: int
) -> tuple[str, ApiToken]:
    """A new token and its row; the token itself is not stored."""
    if "admin" in scopes and principal.user.role != "admin":
        raise InvalidInput.for_field(
            "scopes", "Only admins can create API tokens with the scope 'admin'.", code="scope_not_allowed"
        )
    count = await session.scalar(
        select(func.count()).select_from(ApiToken).where(ApiToken.user_id == principal.id)
    )
    if (count or 0) >= MOST_TOKENS:
        raise Conflict(
            f"You already have {MOST_TOKENS} API tokens, which is the limit. Revoke a token that you "
            "no longer need.",
            code="too_many_tokens",
        )
    token = new_api_token()
    moment = now()
    row = ApiToken(
        id=uuid4(),
        user_id=principal.id,
        name=name,
        prefix=token[: len(API_TOKEN_PREFIX) + 6],
        fingerprint=fingerprint(token),
        scopes=" ".join(sorted(set(scopes))),
        created_at=moment,
        expires_at=moment + timedelta(days=days),
    )
    session.add(row)
    record(session, principal.actor, "api_token.created", f"api_token:{row.id}", scopes=row.scopes)
    return token, row


async def revoke_api_token(session: AsyncSession, principal: Principal, token_id: UUID) -> None:
    """Revoke one of a user's tokens."""
    ended = await session.execute(
        delete(ApiToken)
        .where(ApiToken.id == token_id, ApiToken.user_id == principal.id)
        .returning(ApiToken.id)
    )
    if ended.one_or_none() is None:
        raise NotFound("This API token does not exist.")
    record(session, principal.actor, "api_token.revoked", f"api_token:{token_id}")
