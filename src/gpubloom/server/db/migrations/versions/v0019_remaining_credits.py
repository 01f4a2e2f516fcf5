"""Remaining credits at providers, and which provider sold a rented machine.

A machine that SkyPilot rented is paid at the cloud behind SkyPilot. Rows that are here already do not say
which cloud that was.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "provider_credits",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("stated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_provider_credits_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "provider", name="pk_provider_credits"),
    )
    with op.batch_alter_table("rentals") as batch:
        batch.add_column(sa.Column("seller", sa.String(length=32), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("rentals") as batch:
        batch.drop_column("seller")
    op.drop_table("provider_credits")
