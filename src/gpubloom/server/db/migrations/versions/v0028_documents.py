"""Datasets that are made from documents, and questions about their passages."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("datasets") as table:
        table.add_column(sa.Column("documents", sa.JSON(none_as_null=True), nullable=True))
        table.add_column(sa.Column("questions", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("datasets") as table:
        table.drop_column("questions")
        table.drop_column("documents")
