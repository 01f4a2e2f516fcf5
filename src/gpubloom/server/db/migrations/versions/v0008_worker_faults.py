"""Why a worker claims no jobs: a full, read-only or failing disk of its machine."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("fault_code", sa.String(), nullable=True))
    op.add_column("workers", sa.Column("fault_message", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("workers") as table:
        table.drop_column("fault_message")
        table.drop_column("fault_code")
