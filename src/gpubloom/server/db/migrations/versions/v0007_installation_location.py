"""Where the database lies, so that a copy of it is noticed."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("installation", sa.Column("lies_at", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("installation") as table:
        table.drop_column("lies_at")
