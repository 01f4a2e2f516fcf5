"""How accounts come to be: the first one by a printed link, others by sign-up or invitation.

Replies to strangers are the same whether or not an address has an account; the mailbox gets the truth.
"""

from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import mail
from gpubloom.server.accounts.links import LinkRefused, issue_link, use_link
from gpubloom.server.accounts.mail import Email
from gpubloom.server.accounts.tables import OneTimeLink, User
from gpubloom.server.audit.service import record
from gpubloom.server.clock import now
from gpubloom.server.problems import Conflict, Forbidden
from gpubloom.server.settings import Settings

FIRST_RUN = "first-run"


@dataclass(frozen=True)
class SignUpResult:
    """What a sign-up led to; the letter is to be sent once it is committed."""

    verification_required: bool
    mail: Email | None


async def has_users(session: AsyncSession) -> bool:
    """Whether anybody has an account here."""
    return bool(await session.scalar(select(exists().where(User.id.is_not(None)))))


async def find_by_email(session: AsyncSession, email: str) -> User | None:
    """The account of an address."""
    return await session.scalar(select(User).where(User.email == email))


async def one_at_a_time(session: AsyncSession, email: str) -> None:
    """Let accounts for one address be made one after the other; SQLite's writers do so anyway."""
    if session.get_bind().dialect.name == "postgresql":
        await session.execute(select(func.pg_advisory_xact_lock(func.hashtext(email))))


async def issue_setup_link(session: AsyncSession, address: str) -> str | None:
    """The one-time link to create the first account; None when there is one already."""
    if await has_users(session):
        return None
    secret, _ = await issue_link(session, "setup", FIRST_RUN)
    return mail.page_link(address, "/setup", "token", secret)


async def create_first_admin(
    session: AsyncSession, *, token: str, name: str, email: str, password_hash: str, ip_address: str | None
) -> User:
    """The first account. Whoever could read the server's output is trusted with it."""
    # Two people with two links at the same moment: the second waits here and then finds a user.
    await session.execute(select(OneTimeLink.id).where(OneTimeLink.purpose == "setup").with_for_update())
    if await has_users(session):
        raise Conflict("This server is already set up. Sign in instead.", code="already_set_up")
    await use_link(session, "setup", token)
    user = User(
        id=uuid4(), name=name, email=email, email_verified=now(), role="admin", password_hash=password_hash
    )
    session.add(user)
    await session.flush()
    record(session, "user.first_admin", actor=user.id, subject=f"user:{user.id}", ip_address=ip_address)
    return user


async def sign_up(
    session: AsyncSession,
    settings: Settings,
    *,
    name: str,
    email: str,
    password_hash: str,
    invitation: str | None,
    ip_address: str | None,
) -> SignUpResult:
    """A new account, usable at once when invited, otherwise when its address was confirmed."""
    link = None
    if invitation is not None:
        link = await use_link(session, "invite", invitation)
        if link.identifier != email:
            raise LinkRefused("This invitation is for another email address.", code="invitation_mismatch")
    elif settings.signup == "closed":
        raise Forbidden("Sign-up is closed here. Ask an admin for an invitation.", code="signup_closed")
    elif not await has_users(session):
        # The printed link works while there is no account: a stranger's must not spend it.
        raise Forbidden(
            "This server is not set up yet. Open the link that it printed when it started.",
            code="setup_required",
        )
    await one_at_a_time(session, email)
    if await find_by_email(session, email) is not None:
        if link is not None:
            raise Conflict("You already have an account. Sign in instead.", code="already_registered")
        return SignUpResult(True, mail.already_registered(settings.address, email))
    user = User(
        id=uuid4(),
        name=name,
        email=email,
        email_verified=now() if link is not None else None,
        role=(link.role if link is not None else None) or "member",
        password_hash=password_hash,
    )
    session.add(user)
    await session.flush()
    record(session, "user.signed_up", actor=user.id, subject=f"user:{user.id}", ip_address=ip_address)
    if link is not None:
        return SignUpResult(False, None)
    secret, _ = await issue_link(session, "verify", email)
    return SignUpResult(True, mail.verification(settings.address, email, name, secret))


async def resend_verification(session: AsyncSession, settings: Settings, email: str) -> Email | None:
    """A fresh confirmation letter for an unconfirmed account."""
    user = await find_by_email(session, email)
    if user is None or user.email_verified is not None or user.disabled:
        return None
    secret, _ = await issue_link(session, "verify", email)
    return mail.verification(settings.address, email, user.name, secret)


async def verify_email(session: AsyncSession, token: str, ip_address: str | None) -> User:
    """Confirm an address by its letter."""
    link = await use_link(session, "verify", token)
    user = await find_by_email(session, link.identifier)
    if user is None or user.disabled:
        raise LinkRefused("The account of this link is not active any more.", code="account_disabled")
    user.email_verified = user.email_verified or now()
    record(session, "user.email_verified", actor=user.id, subject=f"user:{user.id}", ip_address=ip_address)
    return user
