"""Recovery codes: ten codes on paper, each of which replaces the second factor once.

A code has 120 random bits, so its SHA-256 is stored, as of other secrets: a slow hash would add nothing. The
letters are Crockford's, which leave out those that people confuse.
"""

import secrets
from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, String, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.security.secrets import fingerprint

COUNT = 10
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_GROUPS, _GROUP_LENGTH = 6, 4
_CONFUSED = str.maketrans({"o": "0", "i": "1", "l": "1", "-": None, " ": None})


class RecoveryCode(Identified, Table):
    """One code that can be used once."""

    __tablename__ = "recovery_codes"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    used_at: Mapped[datetime | None]


def _new_code() -> str:
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_LENGTH)) for _ in range(_GROUPS))
    return "-".join(groups)


def _stored(code: str) -> str:
    return fingerprint(code.lower().translate(_CONFUSED))


async def replace_codes(session: AsyncSession, user_id: UUID) -> list[str]:
    """Ten new codes; the old ones stop working."""
    await remove(session, user_id)
    codes = [_new_code() for _ in range(COUNT)]
    session.add_all(RecoveryCode(user_id=user_id, fingerprint=_stored(code)) for code in codes)
    return codes


async def use_code(session: AsyncSession, user_id: UUID, code: str) -> bool:
    """Spend a code; says whether it was one that could still be used."""
    spent = await session.scalar(
        update(RecoveryCode)
        .where(RecoveryCode.user_id == user_id, RecoveryCode.fingerprint == _stored(code))
        .where(RecoveryCode.used_at.is_(None))
        .values(used_at=now())
        .returning(RecoveryCode.id)
    )
    return spent is not None


async def count_left(session: AsyncSession, user_id: UUID) -> int:
    """How many codes can still be used."""
    count = select(func.count()).select_from(RecoveryCode)
    return (
        await session.scalar(count.where(RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None)))
        or 0
    )


async def remove(session: AsyncSession, user_id: UUID) -> None:
    """Forget all codes of a person."""
    await session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))
