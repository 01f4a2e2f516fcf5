"""The audit trail: its table, and writing to it inside the transaction of what it records."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table


class AuditEvent(Identified, Table):
    """One recorded action of a user."""

    __tablename__ = "audit_events"
    __table_args__ = (Index(None, "at", "id"),)

    at: Mapped[datetime] = mapped_column(default=now)
    actor_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    action: Mapped[str]
    subject: Mapped[str]
    ip_address: Mapped[str | None]
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)


def record(
    session: AsyncSession,
    action: str,
    *,
    actor: UUID | None,
    subject: str,
    ip_address: str | None,
    **details: str | int | bool | None,
) -> None:
    """Record that `actor` did `action` to `subject`. Never pass a secret."""
    session.add(
        AuditEvent(
            action=action, actor_id=actor, subject=subject, ip_address=ip_address, details=dict(details)
        )
    )
