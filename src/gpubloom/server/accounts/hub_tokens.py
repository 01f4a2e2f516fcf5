"""A user's Hugging Face token: stored encrypted, used for downloads, never shown again."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter
from pydantic import Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import ForeignKey, delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, SessionPrincipal
from gpubloom.server.accounts.reauthentication import FreshPrincipal
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.schema import Schema
from gpubloom.server.security.secrets import CannotOpen, SealedColumn, Vault
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/me/hub-token", tags=["accounts"])


class HubToken(Table):
    """One token per user. `sealed` opens only with this server's key and for this user."""

    __tablename__ = "hub_tokens"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    sealed: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)


class NewHubToken(Schema):
    """A Hugging Face token."""

    token: Annotated[SecretStr, Field(min_length=8, max_length=500)]

    @field_validator("token", mode="after")
    @classmethod
    def _one_word(cls, token: SecretStr) -> SecretStr:
        # It goes into a header.
        text = token.get_secret_value().strip()
        if not text.isascii() or not text.isprintable() or " " in text or len(text) < 8:
            raise PydanticCustomError(
                "invalid_hub_token",
                "Invalid Hugging Face token: it contains characters that tokens cannot have. Copy "
                "the token again.",
            )
        return SecretStr(text)


class HubTokenState(Schema):
    """Whether a token is stored. The token itself never leaves the server."""

    present: bool


def _context(user_id: UUID) -> str:
    return f"hub_token:{user_id}"


SEALED_COLUMN = SealedColumn(HubToken, "sealed", lambda row: _context(row.user_id))


async def open_hub_token(session: AsyncSession, settings: Settings, user_id: UUID) -> str | None:
    """The token for downloads, if the user stored one that this server can still read."""
    sealed = await session.scalar(select(HubToken.sealed).where(HubToken.user_id == user_id))
    if sealed is None:
        return None
    try:
        return Vault.of(settings.home).open(sealed, _context(user_id))
    except CannotOpen:
        # A restored database without its key: the person gives the token again.
        return None


@router.get("")
async def read_hub_token(principal: CurrentPrincipal, session: ReadSession) -> HubTokenState:
    """Return whether a Hugging Face token is stored."""
    found = await session.scalar(select(exists().where(HubToken.user_id == principal.id)))
    return HubTokenState(present=bool(found))


@router.put("")
async def store_hub_token(
    body: NewHubToken, principal: FreshPrincipal, session: WriteSession, settings: CurrentSettings
) -> HubTokenState:
    """Store a Hugging Face token. Replaces an earlier token."""
    vault = await anyio.to_thread.run_sync(Vault.of, settings.home)
    sealed = vault.seal(body.token.get_secret_value(), _context(principal.id))
    await session.merge(HubToken(user_id=principal.id, sealed=sealed, created_at=now()))
    record(session, principal.actor, "hub_token.stored", f"user:{principal.id}")
    return HubTokenState(present=True)


@router.delete("", status_code=204)
async def delete_hub_token(principal: SessionPrincipal, session: WriteSession) -> None:
    """Delete the stored Hugging Face token."""
    await session.execute(delete(HubToken).where(HubToken.user_id == principal.id))
    record(session, principal.actor, "hub_token.deleted", f"user:{principal.id}")
