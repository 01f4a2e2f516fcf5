"""Writing to the audit log inside of the transaction of what an entry records."""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Actor:
    """Who did something, and from which address; without an id, somebody who is not signed in."""

    id: UUID | None
    ip_address: str | None


# The server, or its operator at a terminal.
SYSTEM = Actor(None, None)


def record(
    session: AsyncSession,
    actor: Actor,
    action: str,
    subject: str,
    project: UUID | None = None,
    /,
    **details: str | int | bool | None,
) -> None:
    """Record that `actor` did `action` to `subject`. Never pass a secret."""
    entry = AuditEvent(
        id=uuid4(),
        at=now(),
        action=action,
        actor_id=actor.id,
        subject=subject,
        project_id=project,
        ip_address=actor.ip_address,
        details=details,
    )
    session.add(entry)
    session.info.setdefault(_WAITING, []).append(entry)


async def record_apart(
    database: Database,
    actor: Actor,
    action: str,
    subject: str,
    project: UUID | None = None,
    /,
    **details: str | int | bool | None,
) -> None:
    """As `record`, in a transaction of its own: for what changes nothing, such as a download."""
    async with database.write() as session:
        record(session, actor, action, subject, project, **details)


@event.listens_for(Session, "before_commit")
def _join_chain(session: Session) -> None:
    # Also called when a savepoint ends; the chain's lock is for the end of the whole transaction.
    if session.in_nested_transaction():
        return
    entries: list[AuditEvent] = session.info.pop(_WAITING, [])
    if entries:
        home: Any = session.info.get(HOME)
        extend(session, entries, None if home is None else Vault.of(home))
