"""Which second factors a person has, and the check of a code they typed.

Guesses are counted per person and IP address. Somebody who knows the password could guess from many
addresses, and codes of an app have six digits only: so all addresses that the person does not use share one
more limit. It stops no recovery code, no passkey, and no address where the person is signed in: nobody can
lock the owner out.
"""

from typing import Literal
from uuid import UUID

from sqlalchemy import delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import passkeys, recovery_codes, totp
from gpubloom.server.accounts.tables import BrowserSession
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.problems import InvalidInput, TooManyRequests
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import Vault

Factor = Literal["totp", "passkey", "recovery_code"]

# A right code of an app is told by what it was for.
_AUDITED: dict[tuple[Factor, bool], str] = {
    ("recovery_code", True): "user.recovery_code_used",
    ("recovery_code", False): "user.second_factor_failed",
    ("totp", False): "user.second_factor_failed",
}

_GUESSES = Rate("second-factor", limit=10, seconds=15 * 60)
_GUESSES_ELSEWHERE = Rate("second-factor-elsewhere", limit=60, seconds=60 * 60)


async def factors_of(session: AsyncSession, user_id: UUID) -> list[Factor]:
    """What the second step of a sign-in accepts; empty when a password is enough."""
    factors: list[Factor] = []
    if await totp.is_enabled(session, user_id):
        factors.append("totp")
    if await passkeys.count(session, user_id):
        factors.append("passkey")
    if factors and await recovery_codes.count_left(session, user_id):
        factors.append("recovery_code")
    return factors


async def check_code(
    database: Database, vault: Vault, user_id: UUID, code: str, ip_address: str | None
) -> Factor:
    """Which factor a code belongs to; it is spent. Raises when it is wrong."""
    address = ip_address or "unknown"
    await _GUESSES.count(database, str(user_id), address)
    typed = code.replace(" ", "")
    factor: Factor = "totp" if len(typed) == totp.DIGITS and typed.isdecimal() else "recovery_code"
    if factor == "totp":
        await _limit_elsewhere(database, user_id, address)
    async with database.write() as session:
        if factor == "totp":
            right = await totp.use_code(session, vault, user_id, typed)
        else:
            right = await recovery_codes.use_code(session, user_id, typed)
        action = _AUDITED.get((factor, right))
        if action is not None:
            record(
                session,
                action,
                actor=user_id,
                subject=f"user:{user_id}",
                ip_address=ip_address,
                factor=factor,
            )
    if not right:
        raise wrong_code()
    # Whoever has the code was not guessing.
    await _GUESSES.forget(database, str(user_id), address)
    return factor


def wrong_code() -> InvalidInput:
    return InvalidInput.for_field(
        "code", "This code is wrong or was already used. Enter the next code.", code="wrong_code"
    )


async def _limit_elsewhere(database: Database, user_id: UUID, address: str) -> None:
    familiar = exists().where(
        BrowserSession.user_id == user_id,
        BrowserSession.ip_address == address,
        BrowserSession.expires > now(),
    )
    async with database.read() as session:
        if await session.scalar(select(familiar)):
            return
    try:
        await _GUESSES_ELSEWHERE.count(database, str(user_id))
    except TooManyRequests as limit:
        raise TooManyRequests(
            "Too many wrong codes were entered for this account. Use a recovery code or a passkey, or try "
            "again in an hour.",
            retry_after=int(limit.headers["Retry-After"]),
        ) from None


async def first_recovery_codes(session: AsyncSession, user_id: UUID) -> list[str]:
    """Recovery codes for a person who has just got a second factor; empty when they already have some."""
    if await recovery_codes.count_left(session, user_id):
        return []
    return await recovery_codes.replace_codes(session, user_id)


async def forget_unneeded_codes(session: AsyncSession, user_id: UUID) -> None:
    """Without a second factor, recovery codes replace nothing."""
    if not await totp.is_enabled(session, user_id) and not await passkeys.count(session, user_id):
        await recovery_codes.remove(session, user_id)


async def remove_all(session: AsyncSession, user_id: UUID) -> None:
    """Leave a person with their password only."""
    await totp.remove(session, user_id)
    await recovery_codes.remove(session, user_id)
    await session.execute(delete(passkeys.Passkey).where(passkeys.Passkey.user_id == user_id))
