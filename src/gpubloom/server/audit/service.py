"""Writes the audit trail, inside the transaction of what it records."""

from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.audit.tables import AuditEvent


def record(
    session: AsyncSession,
    action: str,
    *,
    actor: UUID | None,
    subject: str,
    ip_address: str | None,
    **details: str | int | bool | None,
) -> None:
    """Note that `actor` did `action` to `subject`; never pass a secret."""
    session.add(
        AuditEvent(
            action=action, actor_id=actor, subject=subject, ip_address=ip_address, details=dict(details)
        )
    )
