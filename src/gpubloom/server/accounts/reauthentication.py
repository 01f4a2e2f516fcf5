"""Confirm it is you: what could make a stolen session permanent needs a sign-in of the last ten minutes.

Such routes ask for `FreshPrincipal`. A session is as fresh as its `authenticated_at`: the moment of sign-in,
or of the last confirmation. API tokens never are fresh: one that leaked must not make others.
"""

from datetime import timedelta
from typing import Annotated

from fastapi import Depends
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import passkeys
from gpubloom.server.accounts.principal import AdminPrincipal, Principal, SessionPrincipal, require_session
from gpubloom.server.accounts.schemas import Confirmation, ConfirmMethods
from gpubloom.server.accounts.second_factors import check_code, factors_of, wrong_code
from gpubloom.server.accounts.tables import BrowserSession, LinkedAccount, User
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import CurrentDatabase, Database
from gpubloom.server.problems import Forbidden, InvalidInput
from gpubloom.server.security.password_hash import check_password
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import Vault
from gpubloom.server.settings import Settings

FRESH_FOR = timedelta(minutes=10)


async def _require_fresh(principal: SessionPrincipal, database: CurrentDatabase) -> Principal:
    await check_fresh(principal, database)
    return principal


async def check_fresh(principal: Principal, database: Database) -> None:
    """For routes where only some requests are sensitive. Raises as the routes of a `FreshPrincipal` do."""
    require_session(principal)
    async with database.read() as session:
        authenticated_at = await session.scalar(
            select(BrowserSession.authenticated_at).where(BrowserSession.id == principal.session_id)
        )
    # A moment that lies ahead is no recent one: the clock was wrong then, or is now.
    if authenticated_at is None or abs(now() - authenticated_at) > FRESH_FOR:
        raise Forbidden(
            "Your last sign-in is more than 10 minutes ago. Confirm that it is you, then try again.",
            code="fresh_sign_in_required",
        )


FreshPrincipal = Annotated[Principal, Depends(_require_fresh)]


async def _require_fresh_admin(_admin: AdminPrincipal, principal: FreshPrincipal) -> Principal:
    return principal


FreshAdminPrincipal = Annotated[Principal, Depends(_require_fresh_admin)]


_TRIES = Rate("confirm", limit=10, seconds=15 * 60)


async def confirm_methods(session: AsyncSession, user: User) -> ConfirmMethods:
    """How a person confirms that it is them: with what a sign-in asks for."""
    factors = await factors_of(session, user.id)
    providers = await session.scalars(
        select(LinkedAccount.provider)
        .where(LinkedAccount.user_id == user.id)
        .order_by(LinkedAccount.provider)
    )
    code = "totp" in factors or "recovery_code" in factors
    return ConfirmMethods(
        # Never alone where a sign-in asks for more: a passkey without codes leaves the passkey only.
        password=user.password_hash is not None and (code or not factors),
        code=code,
        passkey="passkey" in factors,
        providers=sorted(set(providers)),
    )


async def confirm(database: Database, settings: Settings, principal: Principal, body: Confirmation) -> None:
    """Refresh a session whose owner proves who they are, with a passkey or with password and code."""
    # Counted per session: guesses with a stolen one do not stop the owner, who signs in again.
    await _TRIES.count(database, str(principal.session_id))
    try:
        method = await _check(database, settings, principal, body)
    except (InvalidInput, Forbidden):
        async with database.write() as session:
            record(session, principal.actor, "session.confirm_failed", f"session:{principal.session_id}")
        raise
    async with database.write() as session:
        await session.execute(
            update(BrowserSession)
            .where(BrowserSession.id == principal.session_id)
            .values(authenticated_at=now())
        )
        record(
            session, principal.actor, "session.confirmed", f"session:{principal.session_id}", method=method
        )
    await _TRIES.forget(database, str(principal.session_id))


async def _check(database: Database, settings: Settings, principal: Principal, body: Confirmation) -> str:
    assert principal.session_id is not None
    if body.credential is not None:
        await passkeys.verify(
            database,
            passkeys.relying_party(settings),
            principal.session_id,
            "confirm",
            credential=body.credential.for_library(),
            user_id=principal.id,
        )
        return "passkey"
    async with database.read() as session:
        methods = await confirm_methods(session, principal.user)
    if not methods.password and not methods.code:
        if methods.passkey:
            raise Forbidden("Confirm with a passkey, or sign out and sign in again.", code="sign_in_again")
        raise Forbidden(
            "Your account has no password. Sign out, and sign in again with your sign-in provider.",
            code="sign_in_again",
        )
    if methods.password:
        typed = body.password.get_secret_value() if body.password else ""
        right, _ = await check_password(typed, principal.user.password_hash)
        if not right:
            raise InvalidInput.for_field("password", "The password is wrong.", code="wrong_password")
    if not methods.code:
        return "password"
    if body.code is None:
        raise wrong_code()
    return await check_code(
        database,
        Vault.of(settings.home),
        principal.id,
        body.code.get_secret_value(),
        principal.ip_address,
    )
