"""The time that a job held a machine, and the checkpoint that it continues from."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    with op.batch_alter_table("training_jobs") as table:
        table.add_column(sa.Column("active_seconds", sa.Double, nullable=False, server_default="0"))
        table.add_column(sa.Column("active_since", MOMENT, nullable=True))
        table.add_column(sa.Column("branch", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("training_jobs") as table:
        table.drop_column("branch")
        table.drop_column("active_since")
        table.drop_column("active_seconds")
