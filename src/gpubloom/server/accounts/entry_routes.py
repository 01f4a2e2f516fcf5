"""The routes that need no account: first run, sign-up, sign-in, confirmation emails. All are rate-limited."""

from fastapi import APIRouter, BackgroundTasks, Depends, Request

from gpubloom.server.accounts import passkeys, passwords, registration
from gpubloom.server.accounts.principal import CurrentMailer, CurrentSettings, client_address, find_principal
from gpubloom.server.accounts.schemas import (
    AuthState,
    EmailOnly,
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
from gpubloom.server.accounts.sessions import OpenedSession, open_session, set_session_cookie
from gpubloom.server.accounts.tables import User
from gpubloom.server.db.database import CurrentDatabase, Database, WriteSession
from gpubloom.server.problems import NotSignedIn
from gpubloom.server.schema import Message
from gpubloom.server.security.password_hash import hash_password
from gpubloom.server.security.rates import Rate

router = APIRouter(prefix="/auth", tags=["accounts"])

_ENTRY = Rate("entry", limit=60, seconds=15 * 60)
_EMAILS = Rate("emails", limit=5, seconds=60 * 60)


async def _count_entry(request: Request, database: CurrentDatabase) -> None:
    await _ENTRY.count(database, client_address(request) or "unknown")


RATED = [Depends(_count_entry)]


async def _count_email(database: Database, email: str) -> None:
    """Called before anything is looked up: a limit that only real accounts met would tell who has one."""
    await _EMAILS.count(database, email)


def _signed_in(request: Request, user: User, opened: OpenedSession) -> SignedIn:
    set_session_cookie(request, opened.secret)
    return SignedIn(user=UserOut.model_validate(user), csrf_token=opened.row.csrf_token)


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
        passkeys=passkeys.unavailable(settings) is None,
        user=None if principal is None else UserOut.model_validate(principal.user),
        csrf_token=None if principal is None else principal.csrf_token,
    )


@router.post("/setup", status_code=201, dependencies=RATED)
async def set_up(request: Request, body: Setup, database: CurrentDatabase) -> SignedIn:
    """Create the first account, an admin, with the link that the server printed."""
    password_hash = await hash_password(body.password.get_secret_value())
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
        opened = await open_session(
            session, user, ip_address=address, user_agent=request.headers.get("user-agent")
        )
    return _signed_in(request, user, opened)


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
    await _count_email(database, body.email)
    password_hash = await hash_password(body.password.get_secret_value())
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
    if result.mail is not None:
        after.add_task(mailer.send, result.mail)
    return SignedUp(
        detail="Check your email and open the link to finish signing up."
        if result.verification_required
        else "Your account is ready. Sign in with your new password.",
        verification_required=result.verification_required,
    )


@router.post("/verify", dependencies=RATED)
async def verify(request: Request, body: Verify, session: WriteSession) -> SignedIn | SecondStep:
    """Confirm an email address with the link from the email, and sign in."""
    user = await registration.verify_email(session, body.token, client_address(request))
    return await finish_first_step(session, request, user)


@router.post("/verify/resend", status_code=202, dependencies=RATED)
async def resend_verification(
    body: EmailOnly,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> Message:
    """Send the confirmation email again."""
    await _count_email(database, body.email)
    async with database.write() as session:
        mail = await registration.resend_verification(session, settings, body.email)
    if mail is not None:
        after.add_task(mailer.send, mail)
    return Message(detail="If this email address still needs confirmation, we sent a new link to it.")


@router.post("/sign-in", dependencies=RATED)
async def sign_in(request: Request, body: SignIn, database: CurrentDatabase) -> SignedIn | SecondStep:
    """Sign in with email address and password. With a second factor, this is the first of two steps."""
    address = client_address(request)
    user = await passwords.check_credentials(
        database, email=body.email, password=body.password.get_secret_value(), ip_address=address
    )
    async with database.write() as session:
        return await finish_first_step(session, request, user)


@router.post("/password/forgot", status_code=202, dependencies=RATED)
async def forgot_password(
    body: EmailOnly,
    database: CurrentDatabase,
    settings: CurrentSettings,
    mailer: CurrentMailer,
    after: BackgroundTasks,
) -> Message:
    """Send a link to choose a new password."""
    await _count_email(database, body.email)
    async with database.write() as session:
        mail = await passwords.forgot_password(session, settings, body.email)
    if mail is not None:
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
    """Choose a new password with the link from the email. All browsers are signed out."""
    password_hash = await hash_password(body.password.get_secret_value())
    async with database.write() as session:
        mail = await passwords.reset_password(
            session,
            settings,
            token=body.token,
            password_hash=password_hash,
            ip_address=client_address(request),
        )
    after.add_task(mailer.send, mail)
