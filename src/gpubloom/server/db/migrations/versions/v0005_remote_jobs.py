"""Jobs on rented machines: where a job runs and what it may cost, credentials, rentals, budgets."""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    with op.batch_alter_table("training_jobs") as table:
        table.add_column(sa.Column("place", sa.JSON(), nullable=True))
        table.add_column(sa.Column("budget", sa.Double(), nullable=True))
        table.add_column(sa.Column("max_hours", sa.Double(), nullable=True))
    installation = op.create_table(
        "installation",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_installation"),
    )
    op.bulk_insert(installation, [{"id": uuid4()}])
    op.create_table(
        "provider_credentials",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("sealed", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.Column("checked_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        _reference("provider_credentials", "user_id", "users", "CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "provider", name="pk_provider_credentials"),
    )
    op.create_table(
        "rentals",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("job_name", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("page", sa.String(), nullable=True),
        sa.Column("gpu", sa.String(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("hourly", sa.Double(), nullable=False),
        sa.Column("billing", sa.String(length=8), nullable=False),
        sa.Column("minimum_seconds", sa.Double(), nullable=False),
        sa.Column("billed_from", MOMENT, nullable=True),
        sa.Column("billed_to", MOMENT, nullable=True),
        sa.Column("billed_seconds", sa.Double(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.Column("metered_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        _reference("rentals", "user_id", "users", "CASCADE"),
        _reference("rentals", "project_id", "projects", "SET NULL"),
        _reference("rentals", "job_id", "training_jobs", "SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_rentals"),
        sa.UniqueConstraint("key", name="uq_rentals_key"),
    )
    op.create_index("ix_rentals_user_id_created_at", "rentals", ["user_id", "created_at"])
    for column in ("state", "project_id", "job_id"):
        op.create_index(f"ix_rentals_{column}", "rentals", [column])
    op.create_table(
        "budgets",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("period", sa.String(length=8), nullable=False),
        sa.Column("warned", sa.JSON(), nullable=False),
        sa.Column("warned_in", sa.String(length=7), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        _reference("budgets", "user_id", "users", "CASCADE"),
        _reference("budgets", "project_id", "projects", "CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
        sa.UniqueConstraint("user_id", "project_id", name="uq_budgets_user_id_project_id"),
    )
    op.create_index("ix_budgets_project_id", "budgets", ["project_id"])


def _reference(table: str, column: str, referred: str, gone: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [f"{referred}.id"], name=f"fk_{table}_{column}_{referred}", ondelete=gone
    )


def downgrade() -> None:
    op.drop_table("budgets")
    op.drop_table("rentals")
    op.drop_table("provider_credentials")
    op.drop_table("installation")
    # Older versions would take them for jobs of this machine.
    op.execute("DELETE FROM training_jobs WHERE kind = 'script' OR target <> 'local'")
    with op.batch_alter_table("training_jobs") as table:
        for name in ("max_hours", "budget", "place"):
            table.drop_column(name)
