"""Remaining credits at providers, which provider sold a rented machine, and artifacts in the bucket.

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
    op.create_table(
        "stored_artifacts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["training_jobs.id"],
            name="fk_stored_artifacts_job_id_training_jobs",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_stored_artifacts"),
        sa.UniqueConstraint("job_id", "path", name="uq_stored_artifacts_job_id_path"),
    )
    op.create_index("ix_stored_artifacts_stored_at", "stored_artifacts", ["stored_at"])
    with op.batch_alter_table("rentals") as batch:
        batch.add_column(sa.Column("seller", sa.String(length=32), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("rentals") as batch:
        batch.drop_column("seller")
    op.drop_table("stored_artifacts")
    op.drop_table("provider_credits")
