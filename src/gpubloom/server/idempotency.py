"""Requests that create something may be sent twice and create it once: the header `Idempotency-Key`.

A client chooses a random key and repeats it when an answer was lost. What the first request made is
remembered in the transaction that made it, so there is never one without the other. A key is a person's own;
after a day it is forgotten.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Header, Request
from sqlalchemy import ForeignKey, String, delete, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.problems import Conflict

_KEPT = timedelta(days=1)


class IdempotencyKey(Table):
    """What was made for a key. `made_id` is empty only inside the transaction that makes it."""

    __tablename__ = "idempotency_keys"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    # Of address and body: a key says that a request is the same one, not just a similar one.
    request_digest: Mapped[str] = mapped_column(String(64))
    made_id: Mapped[UUID | None]
    created_at: Mapped[datetime] = mapped_column(default=now)


@dataclass(frozen=True)
class Creation:
    """A request that creates something, with its key if it has one."""

    user_id: UUID
    key: str | None
    request_digest: str

    async def find_made(self, session: AsyncSession) -> UUID | None:
        """The id that an earlier request with this key created. None: the key is new and now reserved."""
        if self.key is None:
            return None
        own = IdempotencyKey.user_id == self.user_id
        await session.execute(delete(IdempotencyKey).where(own, IdempotencyKey.created_at < now() - _KEPT))
        insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
        # A second request waits here until the first one has committed.
        claimed = await session.execute(
            insert(IdempotencyKey)
            .values(user_id=self.user_id, key=self.key, request_digest=self.request_digest, created_at=now())
            .on_conflict_do_nothing()
            .returning(IdempotencyKey.key)
        )
        if claimed.one_or_none() is not None:
            return None
        row = (
            await session.execute(select(IdempotencyKey).where(own, IdempotencyKey.key == self.key))
        ).scalar_one()
        if row.request_digest != self.request_digest:
            raise Conflict(
                "This Idempotency-Key was already used for a different request. Send a new key.",
                code="idempotency_key_reused",
            )
        return row.made_id

    async def remember(self, session: AsyncSession, made_id: UUID) -> None:
        """Note what was made, in the transaction that makes it."""
        if self.key is not None:
            await session.execute(
                update(IdempotencyKey)
                .where(IdempotencyKey.user_id == self.user_id, IdempotencyKey.key == self.key)
                .values(made_id=made_id)
            )


async def _creation(
    request: Request,
    principal: CurrentPrincipal,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern=r"^[\x21-\x7e]+$",
            description="A random key. Repeat the same key when you send the same request again, "
            "so that it is carried out only once.",
        ),
    ] = None,
) -> Creation:
    asked = hashlib.sha256(request.url.path.encode() + b"\0" + await request.body())
    return Creation(principal.id, idempotency_key, asked.hexdigest())


CurrentCreation = Annotated[Creation, Depends(_creation)]
