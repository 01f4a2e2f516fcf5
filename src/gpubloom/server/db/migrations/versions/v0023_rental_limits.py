"""Limits of rentals, and secrets of people and projects.

Also the offers that a job goes to when its own has no machine.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("rentals") as batch:
        batch.add_column(sa.Column("reserved", sa.Double(), nullable=True))
        batch.add_column(sa.Column("bill", sa.Double(), nullable=True))
        batch.add_column(sa.Column("unowned_since", sa.DateTime(timezone=True), nullable=True))
        batch.add_column(sa.Column("alarmed_at", sa.DateTime(timezone=True), nullable=True))
    with op.batch_alter_table("training_jobs") as batch:
        batch.add_column(sa.Column("secrets", sa.JSON(), nullable=True))
        batch.add_column(sa.Column("failover", sa.JSON(), nullable=True))
    op.create_table(
        "secrets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_secrets_project_id_projects", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_secrets_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_secrets"),
        sa.UniqueConstraint("user_id", "project_id", "name", name="uq_secrets_user_id_project_id_name"),
    )
    op.create_index("ix_secrets_project_id", "secrets", ["project_id"])


def downgrade() -> None:
    op.drop_table("secrets")
    with op.batch_alter_table("training_jobs") as batch:
        batch.drop_column("failover")
        batch.drop_column("secrets")
    with op.batch_alter_table("rentals") as batch:
        batch.drop_column("alarmed_at")
        batch.drop_column("unowned_since")
        batch.drop_column("bill")
        batch.drop_column("reserved")
