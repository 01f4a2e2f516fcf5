"""Writing to the audit log inside of the transaction of what an entry records."""

from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from gpubloom.server.audit.chain import extend
from gpubloom.server.audit.tables import AuditEvent
from gpubloom.server.clock import now
from gpubloom.server.db.database import HOME, Database
from gpubloom.server.security.secrets import Vault

_WAITING = "audit_events"


def record(
    session: AsyncSession,
    action: str,
    *,
    actor: UUID | None,
    subject: str,
    ip_address: str | None,
    project: UUID | None = None,
    **details: str | int | bool | None,
) -> None:
    """Record that `actor` did `action` to `subject`. Never pass a secret."""
    entry = AuditEvent(
        id=uuid4(),
        at=now(),
        action=action,
        actor_id=actor,
        subject=subject,
        project_id=project,
        ip_address=ip_address,
        details=dict(details),
    )
    session.add(entry)
    session.info.setdefault(_WAITING, []).append(entry)


async def record_apart(
    database: Database,
    action: str,
    *,
    actor: UUID | None,
    subject: str,
    ip_address: str | None,
    project: UUID | None = None,
    **details: str | int | bool | None,
) -> None:
    """As `record`, in a transaction of its own: for what changes nothing, such as a download."""
    async with database.write() as session:
        record(
            session,
            action,
            actor=actor,
            subject=subject,
            ip_address=ip_address,
            project=project,
            **details,
        )


@event.listens_for(Session, "before_commit")
def _join_chain(session: Session) -> None:
    # Also called when a savepoint ends; the chain's lock is for the end of the whole transaction.
    if session.in_nested_transaction():
        return
    entries: list[AuditEvent] = session.info.pop(_WAITING, [])
    if entries:
        home: Any = session.info.get(HOME)
        extend(session, entries, None if home is None else Vault.of(home))
