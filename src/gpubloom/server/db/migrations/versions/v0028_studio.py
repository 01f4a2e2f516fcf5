"""The time that a job held a machine, without queue and pauses."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    with op.batch_alter_table("training_jobs") as table:
        table.add_column(sa.Column("active_seconds", sa.Double, nullable=False, server_default="0"))
        table.add_column(sa.Column("active_since", MOMENT, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("training_jobs") as table:
        table.drop_column("active_since")
        table.drop_column("active_seconds")
