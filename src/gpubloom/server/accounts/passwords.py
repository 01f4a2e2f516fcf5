"""Signing in with a password, and what to do when it is forgotten or changed."""

from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import mail
from gpubloom.server.accounts.mail import Email
from gpubloom.server.accounts.registration import LinkRefused, find_by_email, issue_link, use_link
from gpubloom.server.accounts.sessions import end_all_sessions
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import record
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.problems import Forbidden, InvalidInput, NotSignedIn
from gpubloom.server.security.password_hash import check_password, hash_password, weakness
from gpubloom.server.security.rates import Rate
from gpubloom.server.settings import Settings

# Per email and IP address: guessing one password. Per IP address: guessing many accounts. Per email address:
# guesses from many machines.
_PAIR = Rate("sign-in", limit=10, seconds=15 * 60)
_IP_ADDRESS = Rate("sign-in-ip-address", limit=100, seconds=15 * 60)
_ADDRESS = Rate("sign-in-address", limit=100, seconds=60 * 60)


async def check_credentials(database: Database, *, email: str, password: str, ip_address: str | None) -> User:
    """The person whose address and password these are; raises the same for a wrong one of either.

    Opens its own short transactions: hashing takes far too long to hold one.
    """
    ip = ip_address or "unknown"
    await _IP_ADDRESS.count(database, ip)
    await _ADDRESS.count(database, email)
    await _PAIR.count(database, email, ip)
    async with database.read() as session:
        user = await find_by_email(session, email)
    right, fresh_hash = await check_password(password, user.password_hash if user else None)
    if user is None or not right or user.disabled:
        async with database.write() as session:
            record(
                session,
                "user.sign_in_failed",
                actor=user.id if user else None,
                subject=f"user:{user.id}" if user else "user:unknown",
                ip_address=ip_address,
            )
        raise NotSignedIn("The email address or the password is wrong.", code="wrong_credentials")
    if user.email_verified is None:
        raise Forbidden(
            "Confirm your email address first. Open the link that we sent to it.", code="email_not_verified"
        )
    if fresh_hash is not None:
        async with database.write() as session:
            await session.execute(update(User).where(User.id == user.id).values(password_hash=fresh_hash))
    # Whoever knows the password was not guessing.
    await _PAIR.forget(database, email, ip)
    return user


async def forgot_password(session: AsyncSession, settings: Settings, email: str) -> Email | None:
    """The email with a link to choose a new password; None for an unknown address."""
    user = await find_by_email(session, email)
    if user is None or user.disabled:
        return None
    secret, _ = await issue_link(session, "reset", email)
    return mail.password_reset(settings.address, email, user.name, secret)


async def reset_password(
    session: AsyncSession, settings: Settings, *, token: str, password_hash: str, ip_address: str | None
) -> Email:
    """Set a new password with an email link. Also confirms the address, and signs every browser out."""
    link = await use_link(session, "reset", token)
    user = await find_by_email(session, link.identifier)
    if user is None or user.disabled:
        raise LinkRefused("The account of this link is no longer active.", code="account_disabled")
    user.password_hash = password_hash
    user.email_verified = user.email_verified or now()
    await end_all_sessions(session, user.id)
    record(session, "user.password_reset", actor=user.id, subject=f"user:{user.id}", ip_address=ip_address)
    return mail.password_changed(settings.address, user.email, user.name)


_CHANGE = Rate("change-password", limit=10, seconds=15 * 60)


async def change_password(
    database: Database,
    settings: Settings,
    user: User,
    *,
    current: str,
    new: str,
    session_id: UUID | None,
    ip_address: str | None,
) -> Email:
    """Change a password with the old one. Other browsers are signed out."""
    await _CHANGE.count(database, str(user.id))
    right, _ = await check_password(current, user.password_hash)
    if not right:
        raise InvalidInput.for_field(
            "current_password", "The current password is wrong.", code="wrong_password"
        )
    sentence = weakness(new, email=user.email, name=user.name)
    if sentence is not None:
        raise InvalidInput.for_field("new_password", sentence, code="weak_password")
    password_hash = await hash_password(new)
    async with database.write() as session:
        row = await session.scalar(select(User).where(User.id == user.id))
        assert row is not None
        row.password_hash = password_hash
        await end_all_sessions(session, user.id, but=session_id)
        record(
            session, "user.password_changed", actor=user.id, subject=f"user:{user.id}", ip_address=ip_address
        )
    return mail.password_changed(settings.address, user.email, user.name)
