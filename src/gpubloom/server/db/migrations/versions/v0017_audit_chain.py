"""A hash chain over the audit log, and the project of an entry.

Entries lose the reference to their user: deleting a user must not change an entry. Entries that are here
already form the beginning of the chain, in the order of their times. The server signs its end right after.
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_EVENTS = sa.table(
    "audit_events",
    sa.column("id", sa.Uuid()),
    sa.column("sequence", sa.BigInteger()),
    sa.column("previous_hash", sa.String()),
    sa.column("hash", sa.String()),
    sa.column("at", sa.DateTime(timezone=True)),
    sa.column("actor_id", sa.Uuid()),
    sa.column("action", sa.String()),
    sa.column("subject", sa.String()),
    sa.column("ip_address", sa.String()),
    sa.column("details", sa.JSON()),
)


def upgrade() -> None:
    with op.batch_alter_table("audit_events") as batch:
        batch.drop_constraint("fk_audit_events_actor_id_users", type_="foreignkey")
        batch.add_column(sa.Column("sequence", sa.BigInteger(), nullable=True))
        batch.add_column(sa.Column("previous_hash", sa.String(64), nullable=True))
        batch.add_column(sa.Column("hash", sa.String(64), nullable=True))
        batch.add_column(sa.Column("project_id", sa.Uuid(), nullable=True))
        batch.create_unique_constraint("uq_audit_events_sequence", ["sequence"])
        batch.create_index("ix_audit_events_project_id", ["project_id"])
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("signature", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    connection = op.get_bind()
    rows = connection.execute(sa.select(_EVENTS).order_by(_EVENTS.c.at, _EVENTS.c.id)).all()
    previous = "0" * 64
    for sequence, row in enumerate(rows, 1):
        digest = _hash(row, sequence, previous)
        connection.execute(
            sa.update(_EVENTS)
            .where(_EVENTS.c.id == row.id)
            .values(sequence=sequence, previous_hash=previous, hash=digest)
        )
        previous = digest
    if rows:
        connection.execute(sa.insert(head).values(id=1, sequence=len(rows), hash=previous, signature=None))


def _hash(row: Any, sequence: int, previous: str) -> str:
    at: datetime = row.at
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    content = {
        "action": row.action,
        "actor_id": None if row.actor_id is None else str(row.actor_id),
        "at": at.isoformat(timespec="microseconds"),
        "details": row.details,
        "id": str(row.id),
        "ip_address": row.ip_address,
        "previous": previous,
        "project_id": None,
        "sequence": sequence,
        "subject": row.subject,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def downgrade() -> None:
    op.drop_table("audit_head")
    # An entry may name a user who is gone.
    op.execute(
        "UPDATE audit_events SET actor_id = NULL WHERE actor_id IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM users WHERE users.id = audit_events.actor_id)"
    )
    with op.batch_alter_table("audit_events") as batch:
        batch.drop_index("ix_audit_events_project_id")
        batch.drop_constraint("uq_audit_events_sequence", type_="unique")
        for column in ("project_id", "hash", "previous_hash", "sequence"):
            batch.drop_column(column)
        batch.create_foreign_key(
            "fk_audit_events_actor_id_users", "users", ["actor_id"], ["id"], ondelete="SET NULL"
        )
