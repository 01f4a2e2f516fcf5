"""The tables of accounts. Secrets are stored as fingerprints only."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.accounts.schemas import Role
from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table

LinkPurpose = Literal["setup", "verify", "reset", "invite"]


class User(Identified, Table):
    """A person. Email addresses are stored in lower case, so one mailbox is one account."""

    __tablename__ = "users"

    name: Mapped[str]
    email: Mapped[str] = mapped_column(unique=True)
    email_verified: Mapped[datetime | None]
    image: Mapped[str | None]
    role: Mapped[Role] = mapped_column(String(16), default="member")
    password_hash: Mapped[str | None]
    disabled: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)


class LinkedAccount(Identified, Table):
    """A person's account at a sign-in provider, whose tokens are not kept: nothing here needs them."""

    __tablename__ = "accounts"
    __table_args__ = (UniqueConstraint("provider", "provider_account_id"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    type: Mapped[str] = mapped_column(String(16), default="oauth")
    provider: Mapped[str] = mapped_column(String(32))
    provider_account_id: Mapped[str]
    # Only shown, so that a person recognizes the account; None for accounts linked before it was kept.
    email: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)


class BrowserSession(Identified, Table):
    """One signed-in browser. `sessions.py` says how the two secrets take turns."""

    __tablename__ = "sessions"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    next_fingerprint: Mapped[str | None] = mapped_column(String(64), unique=True)
    next_issued_at: Mapped[datetime | None]
    previous_fingerprint: Mapped[str | None] = mapped_column(String(64), index=True)
    renewed_at: Mapped[datetime] = mapped_column(default=now)
    csrf_token: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)
    # When the person last proved who they are; not renewed by mere use.
    authenticated_at: Mapped[datetime | None] = mapped_column(default=now)
    last_seen_at: Mapped[datetime] = mapped_column(default=now)
    expires: Mapped[datetime]
    ip_address: Mapped[str | None]
    user_agent: Mapped[str | None]


class PendingSignIn(Identified, Table):
    """A browser between the two steps of a sign-in; `second_step.py` says what it may do.

    Without a user, the browser was only sent a challenge for a passkey.
    """

    __tablename__ = "pending_sign_ins"

    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    # The sign-in provider of the first step; None after a password.
    provider: Mapped[str | None] = mapped_column(String(32))
    expires: Mapped[datetime]


class KnownDevice(Identified, Table):
    """A browser in which a person signed in before; `devices.py` says what it is spared."""

    __tablename__ = "known_devices"
    __table_args__ = (UniqueConstraint("user_id", "fingerprint"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    fingerprint: Mapped[str] = mapped_column(String(64))
    expires: Mapped[datetime]


class OneTimeLink(Identified, Table):
    """A link that works once: first run, verification, password reset, invitation."""

    __tablename__ = "verification_tokens"
    __table_args__ = (Index(None, "identifier", "purpose"),)

    purpose: Mapped[LinkPurpose] = mapped_column(String(16))
    identifier: Mapped[str]
    role: Mapped[Role | None] = mapped_column(String(16))
    # Who sent the invitation; without that account it is void.
    inviter_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires: Mapped[datetime]
    used_at: Mapped[datetime | None]


class ApiToken(Identified, Table):
    """What a program presents instead of a cookie."""

    __tablename__ = "api_tokens"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(String(16))
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
