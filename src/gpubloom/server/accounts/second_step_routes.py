"""The second step of a sign-in, and the sign-in with a passkey alone: routes that need no account."""

from fastapi import APIRouter, Request
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import passkeys, second_factors, second_step
from gpubloom.server.accounts.devices import read_device_cookie
from gpubloom.server.accounts.principal import CurrentSettings, client_address
from gpubloom.server.accounts.schemas import FactorCode, PasskeyOptions, PasskeySignIn, SecondStep, SignedIn
from gpubloom.server.accounts.tables import PendingSignIn, User
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import Vault

router = APIRouter(prefix="/auth", tags=["accounts"])

# The other routes ask for a pending sign-in, so somebody at the same IP address cannot use them up.
_STARTS = Rate("passkey-sign-in", limit=60, seconds=15 * 60)


@router.get("/second-factor")
async def read_second_step(request: Request, database: CurrentDatabase) -> SecondStep:
    """Return which second factors complete the sign-in of this browser."""
    pending = await second_step.find_pending(database, request)
    if pending is None or pending.user_id is None:
        raise second_step.expired()
    async with database.read() as session:
        return SecondStep(second_factors=await second_factors.factors_of(session, pending.user_id))


@router.post("/second-factor")
async def finish_with_code(
    request: Request, body: FactorCode, database: CurrentDatabase, settings: CurrentSettings
) -> SignedIn:
    """Complete a sign-in with a code of an authenticator app or a recovery code."""
    pending = await second_step.find_pending(database, request)
    if pending is None or pending.user_id is None:
        raise second_step.expired()
    factor = await second_factors.check_guess(
        database,
        Vault.of(settings.home),
        pending.user_id,
        body.code.get_secret_value(),
        ip_address=client_address(request),
        device=read_device_cookie(request),
    )
    async with database.write() as session:
        return await second_step.finish(session, request, pending, await _user(session, pending), factor)


@router.post("/passkey/options")
async def read_passkey_options(
    request: Request, database: CurrentDatabase, settings: CurrentSettings
) -> PasskeyOptions:
    """Start to sign in with a passkey, alone or as the second factor."""
    site = passkeys.relying_party(settings)
    pending = await second_step.find_pending(database, request)
    if pending is None:
        await _STARTS.count(database, client_address(request) or "unknown")
    async with database.write() as session:
        if pending is None:
            pending = await second_step.begin(session, request, None)
        options = await passkeys.request_options(session, site, pending.id, "sign_in", pending.user_id)
    return PasskeyOptions(options=options)


@router.post("/passkey")
async def finish_with_passkey(
    request: Request, body: PasskeySignIn, database: CurrentDatabase, settings: CurrentSettings
) -> SignedIn:
    """Sign in with a passkey."""
    pending = await second_step.find_pending(database, request)
    if pending is None:
        raise second_step.expired()
    passkey = await passkeys.verify(
        database,
        passkeys.relying_party(settings),
        pending.id,
        "sign_in",
        credential=body.credential.for_library(),
        user_id=pending.user_id,
    )
    pending.user_id = passkey.user_id
    async with database.write() as session:
        return await second_step.finish(session, request, pending, await _user(session, pending), "passkey")


async def _user(session: AsyncSession, pending: PendingSignIn) -> User:
    user = await session.scalar(select(User).where(User.id == pending.user_id))
    if user is None:
        raise second_step.expired()
    return user
