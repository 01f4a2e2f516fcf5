"""Which second factors a person has, and the check of a code they typed.

Guesses are counted per person and browser or, where the person never signed in before, per person and IP
address. Somebody who knows the password could guess from many addresses, and codes of an app have six digits
only: so all unknown browsers share one more limit for these. It stops no recovery code, no passkey, and no
known browser: nobody can lock the owner out.
"""

from uuid import UUID

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import passkeys, recovery_codes, totp
from gpubloom.server.accounts.devices import is_known_device
from gpubloom.server.accounts.schemas import Factor
from gpubloom.server.audit import Actor, record
from gpubloom.server.db.database import Database
from gpubloom.server.problems import InvalidInput, TooManyRequests
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import Vault, fingerprint

# A right code of an app is told by what it was for.
_AUDITED: dict[tuple[Factor, bool], str] = {
    ("recovery_code", True): "user.recovery_code_used",
    ("recovery_code", False): "user.second_factor_failed",
    ("totp", False): "user.second_factor_failed",
}

_GUESSES = Rate("second-factor", limit=10, seconds=15 * 60)
_GUESSES_OF_STRANGERS = Rate("second-factor-strangers", limit=60, seconds=60 * 60)


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


async def check_guess(
    database: Database,
    vault: Vault,
    user_id: UUID,
    code: str,
    *,
    ip_address: str | None,
    device: str | None,
) -> Factor:
    """Which factor a code belongs to, for somebody who is not signed in. Raises when they tried too often."""
    async with database.read() as session:
        known = device is not None and await is_known_device(session, user_id, device)
    if known:
        assert device is not None
        key = (str(user_id), fingerprint(device))
    else:
        key = (str(user_id), ip_address or "unknown")
    await _GUESSES.count(database, *key)
    if not known and _kind(code) == "totp":
        await _count_stranger(database, user_id)
    factor = await check_code(database, vault, user_id, code, ip_address)
    # Whoever has the code was not guessing.
    await _GUESSES.forget(database, *key)
    return factor


def _kind(code: str) -> Factor:
    typed = code.replace(" ", "")
    return "totp" if len(typed) == totp.DIGITS and typed.isdecimal() else "recovery_code"


async def check_code(
    database: Database, vault: Vault, user_id: UUID, code: str, ip_address: str | None
) -> Factor:
    """Which factor a code belongs to; it is spent. Raises when it is wrong."""
    factor = _kind(code)
    async with database.write() as session:
        if factor == "totp":
            right = await totp.use_code(session, vault, user_id, code.replace(" ", ""))
        else:
            right = await recovery_codes.use_code(session, user_id, code)
        action = _AUDITED.get((factor, right))
        if action is not None:
            record(session, Actor(user_id, ip_address), action, f"user:{user_id}", factor=factor)
    if not right:
        raise wrong_code()
    return factor


def wrong_code() -> InvalidInput:
    return InvalidInput.for_field(
        "code", "This code is wrong or was already used. Enter the next code.", code="wrong_code"
    )


async def _count_stranger(database: Database, user_id: UUID) -> None:
    try:
        await _GUESSES_OF_STRANGERS.count(database, str(user_id))
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
