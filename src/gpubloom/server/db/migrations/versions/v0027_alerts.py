"""Channels for alerts, their deliveries, and which jobs have changed since they were looked at."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "alert_channels",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("sealed", sa.String(), nullable=True),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("last_sent_at", MOMENT, nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_alert_channels_user_id_users", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_alert_channels_project_id_projects", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_alert_channels"),
    )
    op.create_index("ix_alert_channels_user_id", "alert_channels", ["user_id"])
    op.create_index("ix_alert_channels_project_id", "alert_channels", ["project_id"])
    op.create_table(
        "alert_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("channel_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.String(160), nullable=False),
        sa.Column("rule", sa.String(64), nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("next_try_at", MOMENT, nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["alert_channels.id"],
            name="fk_alert_deliveries_channel_id_alert_channels",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["training_jobs.id"],
            name="fk_alert_deliveries_job_id_training_jobs",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_alert_deliveries"),
        sa.UniqueConstraint("channel_id", "key", name="uq_alert_deliveries_channel_id_key"),
    )
    op.create_index("ix_alert_deliveries_job_id", "alert_deliveries", ["job_id"])
    op.create_index("ix_alert_deliveries_next_try_at", "alert_deliveries", ["next_try_at"])
    op.create_index("ix_training_jobs_updated_at", "training_jobs", ["updated_at"])


def downgrade() -> None:
    op.drop_index("ix_training_jobs_updated_at", "training_jobs")
    op.drop_table("alert_deliveries")
    op.drop_table("alert_channels")
