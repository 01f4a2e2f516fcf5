"""Signing in with a password, and what to do when it is forgotten or changed.

Nobody can lock another person out. A browser in which the person signed in before (`devices.py`) is counted
by itself. Other browsers are counted per pair of email and IP address, and per IP address. Many tries on one
account from many addresses are slowed down, never refused.

A new password ends what the old one let in: other sessions, links to reset it, and API tokens unless their
owner keeps them.
"""

import contextlib
from uuid import UUID

import anyio
from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts import mail
from gpubloom.server.accounts.devices import forget_devices, is_known_device
from gpubloom.server.accounts.mail import Email
from gpubloom.server.accounts.registration import (
    LinkRefused,
    find_by_email,
    holder_of_link,
    issue_link,
    revoke_links,
    use_link,
)
from gpubloom.server.accounts.sessions import end_all_sessions
from gpubloom.server.accounts.tables import ApiToken, User
from gpubloom.server.audit import Actor, record, record_apart
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.problems import Forbidden, InvalidInput, NotSignedIn, TooManyRequests
from gpubloom.server.security.password_hash import check_password, hash_password
from gpubloom.server.security.password_strength import refuse_weak_password
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import fingerprint
from gpubloom.server.settings import Settings

# Per email and IP address: guessing one password. Per IP address: guessing many accounts.
_PAIR = Rate("sign-in", limit=10, seconds=15 * 60)
_IP_ADDRESS = Rate("sign-in-ip-address", limit=60, seconds=15 * 60)
# Per browser that the account knows.
_DEVICE = Rate("sign-in-device", limit=10, seconds=15 * 60)
# Per email address: guesses from many machines. Beyond it, each try takes longer.
_ACCOUNT = Rate("sign-in-account", limit=100, seconds=60 * 60)
_SLOW_SECONDS = 3.0
# Refusals by these rates are recorded once per IP address, so that nobody can fill the audit log.
_RECORDED = Rate("sign-in-limited", limit=1, seconds=15 * 60)


async def _slow_down() -> None:
    await anyio.sleep(_SLOW_SECONDS)


async def check_credentials(
    database: Database, *, email: str, password: str, ip_address: str | None, device: str | None
) -> User:
    """The person whose address and password these are; raises the same for a wrong one of either.

    Opens its own short transactions: hashing takes far too long to hold one.
    """
    async with database.read() as session:
        user = await find_by_email(session, email)
        known = user is not None and device is not None and await is_known_device(session, user.id, device)
    ip = ip_address or "unknown"
    rate, key = (_DEVICE, (email, fingerprint(device))) if known and device else (_PAIR, (email, ip))
    try:
        if not known:
            await _IP_ADDRESS.count(database, ip)
        await rate.count(database, *key)
    except TooManyRequests:
        with contextlib.suppress(TooManyRequests):
            await _RECORDED.count(database, ip)
            await _record_refusal(database, user, ip_address, "rate_limited")
        raise
    if not known:
        try:
            await _ACCOUNT.count(database, email)
        except TooManyRequests:
            # Before the password is looked at: a wrong one must not be known sooner than a right one.
            await _slow_down()
    right, fresh_hash = await check_password(password, user.password_hash if user else None)
    if user is None or not right or user.disabled:
        await _record_refusal(database, user, ip_address, "disabled" if right else "wrong_credentials")
        raise _wrong_credentials()
    if user.email_verified is None:
        await _record_refusal(database, user, ip_address, "email_not_verified")
        raise Forbidden(
            "Confirm your email address first. Open the link that we sent to it.", code="email_not_verified"
        )
    if fresh_hash is not None:
        unchanged = (User.id == user.id, User.password_hash == user.password_hash)
        async with database.write() as session:
            await session.execute(update(User).where(*unchanged).values(password_hash=fresh_hash))
        user.password_hash = fresh_hash
    # Whoever knows the password was not guessing.
    await rate.forget(database, *key)
    return user


async def confirm_sign_up(database: Database, token: str, password: str) -> User | None:
    """Whose sign-up a confirmation link and a password are for; None: there is no such link.

    The password keeps out a stranger who signed up with another's address: the owner of the mailbox may open
    the link, and must not confirm a password that only the stranger knows.
    """
    async with database.read() as session:
        user = await holder_of_link(session, "verify", token)
    if user is not None and not (await check_password(password, user.password_hash))[0]:
        raise InvalidInput.for_field(
            "password",
            "This is not the password of the sign-up. If you do not know it, reset the password.",
            code="wrong_password",
        )
    return user


async def require_unchanged(session: AsyncSession, user: User) -> None:
    """Before a session is opened: a password that was changed while it was checked opens none any more."""
    stored = select(User.password_hash).where(User.id == user.id, User.disabled.is_(False))
    if await session.scalar(stored.with_for_update()) != user.password_hash:
        raise _wrong_credentials()


def _wrong_credentials() -> NotSignedIn:
    return NotSignedIn("The email address or the password is wrong.", code="wrong_credentials")


async def _record_refusal(database: Database, user: User | None, ip_address: str | None, reason: str) -> None:
    await record_apart(
        database,
        Actor(user.id if user else None, ip_address),
        "user.sign_in_failed",
        f"user:{user.id}" if user else "user:unknown",
        reason=reason,
    )


async def forgot_password(session: AsyncSession, settings: Settings, email: str) -> Email | None:
    """The email with a link to choose a new password; None for an unknown address."""
    user = await find_by_email(session, email)
    if user is None or user.disabled:
        return None
    secret, _ = await issue_link(session, "reset", email)
    return mail.password_reset(settings.address, email, secret)


async def reset_password(
    session: AsyncSession,
    settings: Settings,
    *,
    token: str,
    password_hash: str,
    keep_tokens: bool,
    ip_address: str | None,
) -> Email:
    """Set a new password with an email link. Also confirms the address, and signs every browser out."""
    link = await use_link(session, "reset", token)
    user = await find_by_email(session, link.identifier)
    if user is None or user.disabled:
        raise LinkRefused("The account of this link is no longer active.", code="account_disabled")
    user.password_hash = password_hash
    user.email_verified = user.email_verified or now()
    revoked = await _end_access(session, user, session_id=None, device=None, keep_tokens=keep_tokens)
    record(
        session,
        Actor(user.id, ip_address),
        "user.password_reset",
        f"user:{user.id}",
        api_tokens_revoked=revoked,
    )
    return mail.password_changed(settings.address, user.email, user.name, tokens_revoked=revoked > 0)


async def _end_access(
    session: AsyncSession, user: User, *, session_id: UUID | None, device: str | None, keep_tokens: bool
) -> int:
    """End what an old password let in, except this browser; gives the number of revoked API tokens."""
    await end_all_sessions(session, user.id, but=session_id)
    await forget_devices(session, user.id, but=device)
    await revoke_links(session, "reset", user.email)
    # They sign in as well.
    await revoke_links(session, "verify", user.email)
    if keep_tokens:
        return 0
    revoked = await session.scalars(
        delete(ApiToken).where(ApiToken.user_id == user.id).returning(ApiToken.id)
    )
    return len(revoked.all())


_CHANGE = Rate("change-password", limit=10, seconds=15 * 60)


async def change_password(
    database: Database,
    settings: Settings,
    user: User,
    *,
    current: str,
    new: str,
    keep_tokens: bool,
    session_id: UUID | None,
    device: str | None,
    ip_address: str | None,
) -> Email:
    """Change a password with the old one. Other browsers are signed out."""
    await _CHANGE.count(database, str(user.id))
    right, _ = await check_password(current, user.password_hash)
    if not right:
        raise InvalidInput.for_field(
            "current_password", "The current password is wrong.", code="wrong_password"
        )
    await refuse_weak_password("new_password", new, email=user.email, name=user.name)
    password_hash = await hash_password(new)
    async with database.write() as session:
        row = await session.scalar(select(User).where(User.id == user.id))
        assert row is not None
        row.password_hash = password_hash
        revoked = await _end_access(
            session, row, session_id=session_id, device=device, keep_tokens=keep_tokens
        )
        record(
            session,
            Actor(user.id, ip_address),
            "user.password_changed",
            f"user:{user.id}",
            api_tokens_revoked=revoked,
        )
    return mail.password_changed(settings.address, user.email, user.name, tokens_revoked=revoked > 0)
