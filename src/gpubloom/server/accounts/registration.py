"""How accounts come to be: the first one by a printed link, others by sign-up or invitation.

One-time links carry their secret in the fragment of the URL, which never reaches a log, and are used once.
Replies to strangers are the same whether or not an address has an account; the mailbox gets the truth.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import mail
from gpubloom.server.accounts.mail import Email
from gpubloom.server.accounts.schemas import Role
from gpubloom.server.accounts.tables import LinkPurpose, OneTimeLink, User
from gpubloom.server.audit import Actor, record
from gpubloom.server.clock import now
from gpubloom.server.problems import Conflict, Forbidden, Problem
from gpubloom.server.security.secrets import fingerprint, new_secret
from gpubloom.server.settings import Settings

LIFETIMES: dict[LinkPurpose, timedelta] = {
    "setup": timedelta(hours=24),
    "verify": timedelta(hours=24),
    "reset": timedelta(hours=1),
    "invite": timedelta(days=7),
}

KEPT_FOR = timedelta(days=30)

FIRST_RUN = "first-run"


class LinkRefused(Problem):
    """A one-time link that does not work, or no longer works."""

    status, code = 410, "link_unknown"


# Anybody may ask for the others to be sent: a stranger's asking must not end the link that its owner is about
# to open. They end when one of them is used.
_REPLACED: tuple[LinkPurpose, ...] = ("setup", "invite")


async def issue_link(
    session: AsyncSession,
    purpose: LinkPurpose,
    identifier: str,
    *,
    role: Role | None = None,
    inviter_id: UUID | None = None,
) -> tuple[str, OneTimeLink]:
    """A new link for a person. Earlier unused links to set up or to join stop working."""
    # Long enough after its end nobody comes back with a link to be told what became of it.
    await session.execute(delete(OneTimeLink).where(OneTimeLink.expires < now() - KEPT_FOR))
    if purpose in _REPLACED:
        await revoke_links(session, purpose, identifier)
    secret = new_secret()
    link = OneTimeLink(
        purpose=purpose,
        identifier=identifier,
        role=role,
        inviter_id=inviter_id,
        fingerprint=fingerprint(secret),
        expires=now() + LIFETIMES[purpose],
    )
    session.add(link)
    return secret, link


async def revoke_links(session: AsyncSession, purpose: LinkPurpose, identifier: str) -> None:
    """End a person's links that could still be used for this purpose."""
    await session.execute(
        delete(OneTimeLink).where(
            OneTimeLink.purpose == purpose,
            OneTimeLink.identifier == identifier,
            OneTimeLink.used_at.is_(None),
            OneTimeLink.expires > now(),
        )
    )


async def holder_of_link(session: AsyncSession, purpose: LinkPurpose, secret: str) -> User | None:
    """Whose account a link is for; it is not spent by asking."""
    return await session.scalar(
        select(User)
        .join(OneTimeLink, OneTimeLink.identifier == User.email)
        .where(OneTimeLink.purpose == purpose, OneTimeLink.fingerprint == fingerprint(secret))
    )


async def use_link(session: AsyncSession, purpose: LinkPurpose, secret: str) -> OneTimeLink:
    """Spend a link; raises with the reason when it cannot be spent."""
    mine = (OneTimeLink.fingerprint == fingerprint(secret), OneTimeLink.purpose == purpose)
    moment = now()
    spent: OneTimeLink | None = await session.scalar(
        update(OneTimeLink)
        .where(*mine, OneTimeLink.used_at.is_(None), OneTimeLink.expires > moment)
        .values(used_at=moment)
        .returning(OneTimeLink)
    )
    if spent is not None:
        return spent
    known = await session.scalar(select(OneTimeLink).where(*mine))
    if known is None:
        newer = (
            "The server prints a new link at each start"
            if purpose == "setup"
            else "A newer link may have been sent"
        )
        raise LinkRefused(f"This link is not valid. {newer}: use the latest link.")
    if known.used_at is not None:
        raise LinkRefused("This link was already used. Each link works only once.", code="link_used")
    raise LinkRefused("This link has expired. Request a new one.", code="link_expired")


@dataclass(frozen=True)
class SignUpResult:
    """What a sign-up led to; the email is to be sent once it is committed."""

    verification_required: bool
    mail: Email | None


async def has_users(session: AsyncSession) -> bool:
    """Whether any account exists."""
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
    """The first account, for a person who can read the server's output."""
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
    record(session, Actor(user.id, ip_address), "user.first_admin", f"user:{user.id}")
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
    """A new account. Invited users can use it at once; others must confirm their email address first."""
    link = None
    if invitation is not None:
        link = await use_link(session, "invite", invitation)
        if link.identifier != email:
            raise LinkRefused("This invitation is for a different email address.", code="invitation_mismatch")
        await _require_inviter(session, link)
    elif settings.signup == "closed":
        raise Forbidden(
            "Sign-up is closed on this server. Ask an admin for an invitation.", code="signup_closed"
        )
    elif not await has_users(session):
        # The printed link works while there is no account: a stranger's must not spend it.
        raise Forbidden(
            "This server is not set up yet. Open the link that the server printed when it started.",
            code="setup_required",
        )
    await one_at_a_time(session, email)
    known = await find_by_email(session, email)
    if link is not None:
        user = known or User(id=uuid4(), email=email)
        if user.email_verified is not None or user.disabled:
            raise Conflict("You already have an account. Sign in instead.", code="already_registered")
        # An account that nobody confirmed may be a stranger's sign-up; the invitation came to the mailbox.
        user.name, user.password_hash, user.role = name, password_hash, link.role or "member"
        user.email_verified = now()
        session.add(user)
        await session.flush()
        await revoke_links(session, "verify", email)
        await revoke_links(session, "reset", email)
        record(session, Actor(user.id, ip_address), "user.signed_up", f"user:{user.id}")
        return SignUpResult(False, None)
    if known is not None:
        if known.email_verified is not None or known.disabled:
            return SignUpResult(True, mail.already_registered(settings.address, email))
        # One of the sign-ups may be a stranger's. Only the mailbox tells them apart: it chooses the password.
        known.password_hash = None
        return SignUpResult(True, await _confirmation(session, settings, known))
    user = User(id=uuid4(), name=name, email=email, role="member", password_hash=password_hash)
    session.add(user)
    await session.flush()
    record(session, Actor(user.id, ip_address), "user.signed_up", f"user:{user.id}")
    return SignUpResult(True, await _confirmation(session, settings, user))


async def _confirmation(session: AsyncSession, settings: Settings, user: User) -> Email:
    if user.password_hash is None:
        secret, _ = await issue_link(session, "reset", user.email)
        return mail.signed_up_again(settings.address, user.email, secret)
    secret, _ = await issue_link(session, "verify", user.email)
    return mail.verification(settings.address, user.email, secret)


async def _require_inviter(session: AsyncSession, link: OneTimeLink) -> None:
    inviter = await session.scalar(
        select(User.id).where(User.id == link.inviter_id, User.role == "admin", User.disabled.is_(False))
    )
    if inviter is None:
        raise LinkRefused(
            "This invitation ended because its sender is no longer an admin. Ask an admin for a new one.",
            code="invitation_void",
        )


async def resend_verification(session: AsyncSession, settings: Settings, email: str) -> Email | None:
    """A fresh confirmation email for an unconfirmed account."""
    user = await find_by_email(session, email)
    if user is None or user.email_verified is not None or user.disabled:
        return None
    return await _confirmation(session, settings, user)


async def verify_email(session: AsyncSession, token: str, ip_address: str | None) -> User:
    """Confirm an address by its email, and with it the password of the sign-up, which the caller checked."""
    link = await use_link(session, "verify", token)
    user = await find_by_email(session, link.identifier)
    if user is None or user.disabled:
        raise LinkRefused("The account of this link is no longer active.", code="account_disabled")
    user.email_verified = user.email_verified or now()
    await revoke_links(session, "verify", user.email)
    record(session, Actor(user.id, ip_address), "user.email_verified", f"user:{user.id}")
    return user
