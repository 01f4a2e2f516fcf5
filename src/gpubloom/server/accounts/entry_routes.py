"""The routes that need no account: first run, sign-up, sign-in, confirmation emails. All are rate-limited."""

from typing import Any

from fastapi import APIRouter, BackgroundTasks, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import SecretStr

from gpubloom.server.accounts import passkeys, passwords, registration
from gpubloom.server.accounts.devices import read_device_cookie, sign_browser_in
from gpubloom.server.accounts.principal import CurrentMailer, CurrentSettings, client_address, find_principal
from gpubloom.server.accounts.schemas import (
    AuthState,
    EmailOnly,
    PasswordStrength,
    PasswordToRate,
    ResetPassword,
    SecondStep,
    Setup,
    SignedIn,
    SignedUp,
    SignIn,
    SignUp,
    UserOut,
    Verify,
)
from gpubloom.server.accounts.second_step import finish_first_step
from gpubloom.server.db.database import CurrentDatabase, Database
from gpubloom.server.problems import NotSignedIn, TooManyRequests
from gpubloom.server.schema import Message
from gpubloom.server.security import password_strength
from gpubloom.server.security.password_hash import hash_password
from gpubloom.server.security.rates import Rate

router = APIRouter(prefix="/auth", tags=["accounts"])

_FIRST_STEP: dict[int | str, dict[str, Any]] = {
    200: {"model": SignedIn},
    202: {"model": SecondStep, "description": "A second factor is needed"},
}

_ENTRY = Rate("entry", limit=60, seconds=15 * 60)
# Per email and IP address. Per email address, whoever asks: a mailbox is not to be filled.
_EMAILS = Rate("emails", limit=5, seconds=60 * 60)
_MAILBOX = Rate("mailbox", limit=20, seconds=60 * 60)
_STRENGTH = Rate("password-strength", limit=300, seconds=15 * 60)


async def _count_entry(request: Request, database: CurrentDatabase) -> None:
    await _ENTRY.count(database, client_address(request) or "unknown")


RATED = [Depends(_count_entry)]


async def _may_send(request: Request, database: Database, email: str) -> bool:
    """Whether one more email may go to this address; raises when this client asked too often.

    Called before anything is looked up: a limit that only real accounts met would tell who has one. When
    others asked too often, the answer stays the same: the mailbox already has links that work.
    """
    await _EMAILS.count(database, email, client_address(request) or "unknown")
    try:
        await _MAILBOX.count(database, email)
    except TooManyRequests:
        return False
    return True


async def _hash_chosen(password: SecretStr, *, email: str, name: str) -> str:
    plain = password.get_secret_value()
    await password_strength.refuse_weak_password("password", plain, email=email, name=name)
    return await hash_password(plain)


@router.get("/state")
async def read_state(
    request: Request, database: CurrentDatabase, settings: CurrentSettings, mailer: CurrentMailer
) -> AuthState:
    """Return whether a user is signed in, and which ways to sign in or sign up are available."""
    try:
        principal = await find_principal(request)
    except NotSignedIn:
        principal = None
    async with database.read() as session:
        set_up = principal is not None or await registration.has_users(session)
    return AuthState(
        setup_required=not set_up,
        signup=settings.signup,
        mail=mailer.kind,
        oauth_providers=list(request.app.state.oauth),
        oidc_name=settings.oidc_name,
        passkeys=passkeys.unavailable(settings) is None,
        user=None if principal is None else UserOut.model_validate(principal.user),
        csrf_token=None if principal is None else principal.csrf_token,
    )


@router.post("/setup", status_code=201, dependencies=RATED)
async def set_up(request: Request, body: Setup, database: CurrentDatabase) -> SignedIn:
    """Create the first account, an admin, with the link that the server printed."""
    password_hash = await _hash_chosen(body.password, email=body.email, name=body.name)
    address = client_address(request)
    async with database.write() as session:
        user = await registration.create_first_admin(
            session,
            token=body.token,
            name=body.name,
            email=body.email,
            password_hash=password_hash,
            ip_address=address,
        )
        opened = await sign_browser_in(request, session, user)
    return SignedIn(user=UserOut.model_validate(user), csrf_token=opened.row.csrf_token)


@router.post("/sign-up", status_code=202, dependencies=RATED)
async def sign_up(
    request: Request,
    body: SignUp,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> SignedUp:
    """Create an account. The reply does not reveal whether the email address already has an account."""
    password_hash = await _hash_chosen(body.password, email=body.email, name=body.name)
    may_send = await _may_send(request, database, body.email)
    async with database.write() as session:
        result = await registration.sign_up(
            session,
            settings,
            name=body.name,
            email=body.email,
            password_hash=password_hash,
            invitation=body.invitation,
            ip_address=client_address(request),
        )
    if result.mail is not None and may_send:
        after.add_task(mailer.send, result.mail)
    return SignedUp(
        detail="Check your email and open the link to finish signing up."
        if result.verification_required
        else "Your account is ready. Sign in with your new password.",
        verification_required=result.verification_required,
    )


@router.post("/verify", dependencies=RATED, response_model=None, responses=_FIRST_STEP)
async def verify(request: Request, body: Verify, database: CurrentDatabase) -> Response:
    """Confirm an email address with the link from the email and the password of the sign-up, and sign in."""
    checked = await passwords.confirm_sign_up(database, body.token, body.password.get_secret_value())
    async with database.write() as session:
        user = await registration.verify_email(session, body.token, client_address(request))
        await passwords.require_unchanged(session, checked or user)
        answer = await finish_first_step(session, request, user)
    return _first_step(answer)


@router.post("/verify/resend", status_code=202, dependencies=RATED)
async def resend_verification(
    request: Request,
    body: EmailOnly,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> Message:
    """Send the confirmation email again."""
    may_send = await _may_send(request, database, body.email)
    async with database.write() as session:
        mail = await registration.resend_verification(session, settings, body.email)
    if mail is not None and may_send:
        after.add_task(mailer.send, mail)
    return Message(detail="If this email address still needs confirmation, we sent a new link to it.")


# Counted by itself: a known browser must not be refused because of others at the same IP address.
@router.post("/sign-in", response_model=None, responses=_FIRST_STEP)
async def sign_in(request: Request, body: SignIn, database: CurrentDatabase) -> Response:
    """Sign in with email address and password. With a second factor, this is the first of two steps."""
    address = client_address(request)
    user = await passwords.check_credentials(
        database,
        email=body.email,
        password=body.password.get_secret_value(),
        ip_address=address,
        device=read_device_cookie(request),
    )
    async with database.write() as session:
        await passwords.require_unchanged(session, user)
        answer = await finish_first_step(session, request, user)
    return _first_step(answer)


def _first_step(answer: SignedIn | SecondStep) -> Response:
    """Accepted but not signed in yet: the status tells the two answers apart."""
    status = 202 if isinstance(answer, SecondStep) else 200
    return JSONResponse(answer.model_dump(mode="json"), status_code=status)


@router.post("/password/forgot", status_code=202, dependencies=RATED)
async def forgot_password(
    request: Request,
    body: EmailOnly,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> Message:
    """Send a link to choose a new password."""
    may_send = await _may_send(request, database, body.email)
    async with database.write() as session:
        mail = await passwords.forgot_password(session, settings, body.email)
    if mail is not None and may_send:
        after.add_task(mailer.send, mail)
    return Message(detail="If this email address has an account, we sent a link to choose a new password.")


@router.post("/password/reset", status_code=204, dependencies=RATED)
async def reset_password(
    request: Request,
    body: ResetPassword,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> None:
    """Choose a new password with the link from the email.

    All browsers are signed out and, unless you keep them, all API tokens revoked.
    """
    async with database.read() as session:
        user = await registration.holder_of_link(session, "reset", body.token)
    password_hash = await _hash_chosen(
        body.password, email=user.email if user else "", name=user.name if user else ""
    )
    async with database.write() as session:
        mail = await passwords.reset_password(
            session,
            settings,
            token=body.token,
            password_hash=password_hash,
            keep_tokens=body.keep_tokens,
            ip_address=client_address(request),
        )
    after.add_task(mailer.send, mail)


@router.post("/password/strength")
async def rate_password(
    request: Request, body: PasswordToRate, database: CurrentDatabase
) -> PasswordStrength:
    """Rate a password before you choose it. It is not stored."""
    await _STRENGTH.count(database, client_address(request) or "unknown")
    strength = await password_strength.rate_password(
        body.password.get_secret_value(), email=body.email, name=body.name
    )
    return PasswordStrength(score=strength.score, advice=strength.advice)
