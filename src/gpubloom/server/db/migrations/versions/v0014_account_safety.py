"""When a session was last confirmed by its owner, and what guards accounts."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_INVITER = "fk_verification_tokens_inviter_id_users"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("authenticated_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE sessions SET authenticated_at = created_at")

    with op.batch_alter_table("verification_tokens") as table:
        table.add_column(sa.Column("inviter_id", sa.Uuid(), nullable=True))
        table.create_foreign_key(_INVITER, "users", ["inviter_id"], ["id"], ondelete="CASCADE")
        table.create_index("ix_verification_tokens_inviter_id", ["inviter_id"])
    # Earlier invitations did not say who sent them; the audit trail does.
    op.execute(
        "UPDATE verification_tokens SET inviter_id = (SELECT actor_id FROM audit_events"
        " WHERE action = 'user.invited' AND subject = 'email:' || verification_tokens.identifier"
        " ORDER BY at DESC LIMIT 1) WHERE purpose = 'invite'"
    )

    op.add_column("accounts", sa.Column("email", sa.String(), nullable=True))

    op.create_table(
        "known_devices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_known_devices_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_known_devices"),
        sa.UniqueConstraint("user_id", "fingerprint", name="uq_known_devices_user_id_fingerprint"),
    )


def downgrade() -> None:
    op.drop_table("known_devices")
    op.drop_column("accounts", "email")
    with op.batch_alter_table("verification_tokens") as table:
        table.drop_index("ix_verification_tokens_inviter_id")
        table.drop_constraint(_INVITER, type_="foreignkey")
        table.drop_column("inviter_id")
    op.drop_column("sessions", "authenticated_at")
