"""A person's own second factors: authenticator app, recovery codes, passkeys; and "confirm it is you"."""

from uuid import UUID

from fastapi import APIRouter, BackgroundTasks
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import mail, passkeys, recovery_codes, second_factors, totp
from gpubloom.server.accounts.mail import Email
from gpubloom.server.accounts.principal import (
    CurrentMailer,
    CurrentSettings,
    Principal,
    SessionPrincipal,
)
from gpubloom.server.accounts.reauthentication import FreshPrincipal, confirm, confirm_methods
from gpubloom.server.accounts.schemas import (
    AddedPasskey,
    Confirmation,
    ConfirmMethods,
    FactorCode,
    FactorsOut,
    NewPasskey,
    PasskeyChange,
    PasskeyOptions,
    PasskeyOut,
    RecoveryCodes,
    TotpSetup,
)
from gpubloom.server.audit import record
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.problems import Conflict
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import Vault
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/me", tags=["accounts"])

_FIRST_CODES = Rate("totp-enable", limit=20, seconds=15 * 60)


@router.get("/factors")
async def read_factors(
    principal: SessionPrincipal, session: ReadSession, settings: CurrentSettings
) -> FactorsOut:
    """Return your second factors."""
    return FactorsOut(
        totp_enabled_at=await totp.enabled_at(session, principal.id),
        passkeys=[
            PasskeyOut.model_validate(row) for row in await passkeys.list_passkeys(session, principal.id)
        ],
        recovery_codes_left=await recovery_codes.count_left(session, principal.id),
        passkeys_unavailable=passkeys.unavailable(settings),
    )


@router.post("/totp")
async def prepare_totp(
    principal: FreshPrincipal, session: WriteSession, settings: CurrentSettings
) -> TotpSetup:
    """Start to set up an authenticator app. Signing in asks for its codes after you enable it."""
    secret = await totp.prepare(session, Vault.of(settings.home), principal.user)
    link = totp.setup_link(secret, principal.user)
    return TotpSetup(secret=secret, link=link, qr_code=totp.qr_code(link))


@router.post("/totp/enable")
async def enable_totp(
    body: FactorCode,
    principal: FreshPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> RecoveryCodes:
    """Enable the authenticator app with its first code."""
    await _FIRST_CODES.count(database, str(principal.id))
    typed = body.code.get_secret_value().replace(" ", "")
    async with database.write() as session:
        if not await totp.enable(session, Vault.of(settings.home), principal.id, typed):
            raise second_factors.wrong_code()
        codes = await second_factors.first_recovery_codes(session, principal.id)
        _record(session, principal, "totp.enabled")
    after.add_task(
        mailer.send, _change_email(settings, principal, "An authenticator app was added to your account.")
    )
    return RecoveryCodes(recovery_codes=codes)


@router.delete("/totp", status_code=204)
async def disable_totp(
    principal: FreshPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> None:
    """Turn off the authenticator app."""
    await totp.remove(session, principal.id)
    await second_factors.forget_unneeded_codes(session, principal.id)
    _record(session, principal, "totp.disabled")
    after.add_task(
        mailer.send,
        _change_email(settings, principal, "The authenticator app was removed from your account."),
    )


@router.post("/recovery-codes")
async def replace_recovery_codes(
    principal: FreshPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> RecoveryCodes:
    """Create new recovery codes. The old codes stop working."""
    if not await second_factors.factors_of(session, principal.id):
        raise Conflict(
            "Recovery codes need a second factor. Set up an authenticator app or a passkey first.",
            code="no_second_factor",
        )
    codes = await recovery_codes.replace_codes(session, principal.id)
    _record(session, principal, "recovery_codes.replaced")
    after.add_task(
        mailer.send, _change_email(settings, principal, "New recovery codes were made for your account.")
    )
    return RecoveryCodes(recovery_codes=codes)


@router.post("/passkeys/options")
async def read_registration_options(
    principal: FreshPrincipal, session: WriteSession, settings: CurrentSettings
) -> PasskeyOptions:
    """Start to add a passkey."""
    assert principal.session_id is not None
    site = passkeys.relying_party(settings)
    return PasskeyOptions(
        options=await passkeys.registration_options(session, site, principal.user, principal.session_id)
    )


@router.post("/passkeys", status_code=201)
async def add_passkey(
    body: NewPasskey,
    principal: FreshPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> AddedPasskey:
    """Add the passkey that the browser made."""
    assert principal.session_id is not None
    passkey = await passkeys.register(
        database,
        passkeys.relying_party(settings),
        principal.user,
        principal.session_id,
        name=body.name,
        credential=body.credential.for_library(),
    )
    async with database.write() as session:
        await passkeys.store(session, passkey)
        codes = await second_factors.first_recovery_codes(session, principal.id)
        _record(session, principal, "passkey.added", passkey=str(passkey.id))
    after.add_task(mailer.send, _change_email(settings, principal, "A passkey was added to your account."))
    return AddedPasskey(passkey=PasskeyOut.model_validate(passkey), recovery_codes=codes)


@router.patch("/passkeys/{passkey_id}")
async def rename_passkey(
    passkey_id: UUID, body: PasskeyChange, principal: SessionPrincipal, session: WriteSession
) -> PasskeyOut:
    """Rename a passkey."""
    passkey = await passkeys.rename(session, principal.id, passkey_id, body.name)
    _record(session, principal, "passkey.renamed", passkey=str(passkey_id))
    return PasskeyOut.model_validate(passkey)


@router.delete("/passkeys/{passkey_id}", status_code=204)
async def delete_passkey(
    passkey_id: UUID,
    principal: FreshPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> None:
    """Delete a passkey. It no longer signs in."""
    await passkeys.remove(session, principal.id, passkey_id)
    await second_factors.forget_unneeded_codes(session, principal.id)
    _record(session, principal, "passkey.deleted", passkey=str(passkey_id))
    after.add_task(
        mailer.send, _change_email(settings, principal, "A passkey was deleted from your account.")
    )


@router.get("/confirm")
async def read_confirm_methods(principal: SessionPrincipal, session: ReadSession) -> ConfirmMethods:
    """Return how you can confirm that it is you."""
    return await confirm_methods(session, principal.user)


@router.post("/confirm", status_code=204)
async def confirm_identity(
    body: Confirmation, principal: SessionPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> None:
    """Confirm that it is you. For 10 minutes, this browser may change how the account is protected."""
    await confirm(database, settings, principal, body)


@router.post("/confirm/passkey-options")
async def read_confirm_options(
    principal: SessionPrincipal, session: WriteSession, settings: CurrentSettings
) -> PasskeyOptions:
    """Start to confirm with a passkey."""
    assert principal.session_id is not None
    site = passkeys.relying_party(settings)
    options = await passkeys.request_options(session, site, principal.session_id, "confirm", principal.id)
    return PasskeyOptions(options=options)


def _record(session: AsyncSession, principal: Principal, action: str, **details: str) -> None:
    record(session, principal.actor, action, f"user:{principal.id}", **details)


def _change_email(settings: Settings, principal: Principal, event: str) -> Email:
    return mail.factors_changed(settings.address, principal.user.email, principal.user.name, event)
