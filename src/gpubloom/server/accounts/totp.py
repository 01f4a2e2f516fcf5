"""Codes of an authenticator app (TOTP, RFC 6238): six digits that change every 30 seconds.

The secret is sealed, so that a copy of the database makes no codes. It counts once the person has entered a
first right code. A code is accepted once: the step it belongs to is stored, and only later steps are accepted
after it, so somebody who saw a code being typed cannot use it again.
"""

from datetime import datetime
from uuid import UUID

import pyotp
import segno
from sqlalchemy import BigInteger, ForeignKey, delete, exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.base import Table
from gpubloom.server.problems import Conflict
from gpubloom.server.security.secrets import CannotOpen, SealedColumn, Vault

ISSUER = "GPU Bloom"
STEP_SECONDS = 30
DIGITS = 6
# Clocks of phones differ: the code before and the code after the current one are accepted too.
_DRIFT = (0, -1, 1)


class TotpSecret(Table):
    """One authenticator app per person. `sealed` opens only with this server's key and for this person."""

    __tablename__ = "totp_secrets"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    sealed: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)
    enabled_at: Mapped[datetime | None]
    last_step: Mapped[int | None] = mapped_column(BigInteger)


def _context(user_id: UUID) -> str:
    return f"totp:{user_id}"


SEALED_COLUMN = SealedColumn(TotpSecret, "sealed", lambda row: _context(row.user_id))


async def prepare(session: AsyncSession, vault: Vault, user: User) -> str:
    """A new secret, which replaces one that was never enabled."""
    if await enabled_at(session, user.id) is not None:
        raise Conflict(
            "An authenticator app is already set up. Turn it off before you set up another one.",
            code="totp_already_enabled",
        )
    secret = pyotp.random_base32()
    await session.merge(
        TotpSecret(
            user_id=user.id, sealed=vault.seal(secret, _context(user.id)), created_at=now(), last_step=None
        )
    )
    return secret


def setup_link(secret: str, user: User) -> str:
    """The address that authenticator apps read from a QR code."""
    return pyotp.TOTP(secret).provisioning_uri(name=user.email, issuer_name=ISSUER)


def qr_code(link: str) -> str:
    """A QR code as an SVG image in a data URI."""
    return str(segno.make_qr(link, error="m").svg_data_uri(scale=5, border=4, dark="#000", light="#fff"))


async def enable(session: AsyncSession, vault: Vault, user_id: UUID, code: str) -> bool:
    """Turn the prepared secret on with its first code; says whether the code was right."""
    if not await _spend(session, vault, user_id, code, enabled=False):
        return False
    await session.execute(update(TotpSecret).where(TotpSecret.user_id == user_id).values(enabled_at=now()))
    return True


async def use_code(session: AsyncSession, vault: Vault, user_id: UUID, code: str) -> bool:
    """Whether this is a right code that was not used before."""
    return await _spend(session, vault, user_id, code, enabled=True)


async def _spend(session: AsyncSession, vault: Vault, user_id: UUID, code: str, *, enabled: bool) -> bool:
    state = TotpSecret.enabled_at.is_not(None) if enabled else TotpSecret.enabled_at.is_(None)
    sealed = await session.scalar(select(TotpSecret.sealed).where(TotpSecret.user_id == user_id, state))
    if sealed is None:
        return False
    try:
        totp = pyotp.TOTP(vault.open(sealed, _context(user_id)))
    except CannotOpen:
        # A restored database without its key: recovery codes and passkeys still work.
        return False
    current = int(now().timestamp()) // STEP_SECONDS
    steps = [
        current + drift
        for drift in _DRIFT
        if pyotp.utils.strings_equal(code, totp.generate_otp(current + drift))
    ]
    if not steps:
        return False
    spent = await session.scalar(
        update(TotpSecret)
        # Of two requests with the same code, one gets here first.
        .where(TotpSecret.user_id == user_id, state)
        .where(or_(TotpSecret.last_step.is_(None), TotpSecret.last_step < max(steps)))
        .values(last_step=max(steps))
        .returning(TotpSecret.user_id)
    )
    return spent is not None


async def enabled_at(session: AsyncSession, user_id: UUID) -> datetime | None:
    """When the app was turned on; None when there is none."""
    return await session.scalar(select(TotpSecret.enabled_at).where(TotpSecret.user_id == user_id))


async def is_enabled(session: AsyncSession, user_id: UUID) -> bool:
    """Whether signing in asks for a code."""
    found = exists().where(TotpSecret.user_id == user_id, TotpSecret.enabled_at.is_not(None))
    return bool(await session.scalar(select(found)))


async def remove(session: AsyncSession, user_id: UUID) -> None:
    """Turn the app off and forget its secret."""
    await session.execute(delete(TotpSecret).where(TotpSecret.user_id == user_id))
