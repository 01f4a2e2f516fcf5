"""The machines with workers, when they were heard of last, and which of them are gone."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "machines",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_machines"),
    )
    # Those that jobs lie on count as heard of now: nothing is known about them yet.
    op.execute(
        "INSERT INTO machines (name, last_seen_at) "
        "SELECT DISTINCT machine, CURRENT_TIMESTAMP FROM training_jobs WHERE machine IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_table("machines")
