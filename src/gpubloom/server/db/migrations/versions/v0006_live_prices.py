"""What services said about their prices."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "live_prices",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("rows", sa.JSON(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("provider", name="pk_live_prices"),
    )


def downgrade() -> None:
    op.drop_table("live_prices")
