"""API tokens: made by a signed-in person, shown once, limited in time and scope."""

from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.accounts.schemas import Scope
from gpubloom.server.accounts.tables import ApiToken
from gpubloom.server.audit.service import record
from gpubloom.server.clock import now
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.security.secrets import API_TOKEN_PREFIX, fingerprint, new_api_token

MOST_TOKENS = 50


async def list_api_tokens(session: AsyncSession, user_id: UUID) -> list[ApiToken]:
    """A person's tokens, newest first; expired ones stay listed until revoked."""
    rows = await session.scalars(
        select(ApiToken).where(ApiToken.user_id == user_id).order_by(ApiToken.created_at.desc(), ApiToken.id)
    )
    return list(rows)


async def create_api_token(
    session: AsyncSession, principal: Principal, *, name: str, scopes: list[Scope], days: int
) -> tuple[str, ApiToken]:
    """A new token and its row; the token itself is not stored."""
    if "admin" in scopes and principal.user.role != "admin":
        raise InvalidInput.for_field("scopes", "Only an admin's token can have the scope 'admin'.")
    count = await session.scalar(
        select(func.count()).select_from(ApiToken).where(ApiToken.user_id == principal.id)
    )
    if (count or 0) >= MOST_TOKENS:
        raise Conflict(f"You have {MOST_TOKENS} API tokens. Revoke one that you no longer need.")
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
    record(
        session,
        "api_token.created",
        actor=principal.id,
        subject=f"api_token:{row.id}",
        ip_address=principal.ip_address,
        scopes=row.scopes,
    )
    return token, row


async def revoke_api_token(session: AsyncSession, principal: Principal, token_id: UUID) -> None:
    """End one of a person's tokens."""
    ended = await session.execute(
        delete(ApiToken)
        .where(ApiToken.id == token_id, ApiToken.user_id == principal.id)
        .returning(ApiToken.id)
    )
    if ended.one_or_none() is None:
        raise NotFound("There is no such API token.")
    record(
        session,
        "api_token.revoked",
        actor=principal.id,
        subject=f"api_token:{token_id}",
        ip_address=principal.ip_address,
    )
