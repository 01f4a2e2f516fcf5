"""The tables of the audit log: its entries, and the signed end of their chain."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.server.clock import now
from gpubloom.server.db.base import Identified, Table


class AuditEvent(Identified, Table):
    """One recorded action of a user. No foreign keys: an entry stays as it is when its objects are gone."""

    __tablename__ = "audit_events"
    __table_args__ = (Index(None, "at", "id"), Index(None, "project_id"))

    # Empty only inside of the transaction that writes the entry: `chain.extend` fills the three columns.
    sequence: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    previous_hash: Mapped[str | None] = mapped_column(String(64))
    hash: Mapped[str | None] = mapped_column(String(64))
    at: Mapped[datetime] = mapped_column(default=now)
    actor_id: Mapped[UUID | None]
    action: Mapped[str]
    subject: Mapped[str]
    project_id: Mapped[UUID | None]
    ip_address: Mapped[str | None]
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)


class AuditHead(Table):
    """The end of the chain, in one row. Its signature needs a key that is not in the database."""

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str] = mapped_column(String(64))
    signature: Mapped[str | None] = mapped_column(String(64))
