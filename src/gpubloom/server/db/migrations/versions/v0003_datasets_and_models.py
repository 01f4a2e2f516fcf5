"""Datasets, models and the hub tokens that fetch them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def _kept_files() -> list[sa.Column[object]]:
    return [
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires", MOMENT, nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
    ]


def upgrade() -> None:
    op.create_table(
        "datasets",
        *_kept_files(),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=True),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("encoding", sa.String(length=16), nullable=True),
        sa.Column("origin", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_datasets_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_datasets"),
    )
    op.create_index("ix_datasets_user_id_created_at", "datasets", ["user_id", "created_at"])
    op.create_index("ix_datasets_status", "datasets", ["status"])
    op.create_table(
        "models",
        *_kept_files(),
        sa.Column("repository", sa.String(), nullable=True),
        sa.Column("revision", sa.String(), nullable=True),
        sa.Column("path", sa.String(), nullable=True),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("check_report", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_models_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
    )
    op.create_index("ix_models_user_id_created_at", "models", ["user_id", "created_at"])
    op.create_index("ix_models_status", "models", ["status"])
    op.create_table(
        "hub_tokens",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("sealed", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_hub_tokens_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", name="pk_hub_tokens"),
    )


def downgrade() -> None:
    op.drop_table("hub_tokens")
    op.drop_table("models")
    op.drop_table("datasets")
