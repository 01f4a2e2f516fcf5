"""What was set by whoever started a job, so that the next form sends no defaults of this one."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("training_jobs", sa.Column("requested_config", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("training_jobs") as table:
        table.drop_column("requested_config")
