"""Training jobs and what they say."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("hardware", sa.JSON(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("last_seen_at", MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "training_jobs",
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("target", sa.String(length=32), nullable=False),
        sa.Column("gpu_type", sa.String(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("host_memory", sa.Integer(), nullable=True),
        sa.Column("want", sa.String(length=8), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("saves", sa.Integer(), nullable=False),
        sa.Column("control_version", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires", MOMENT, nullable=True),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("machine", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("fruitless_attempts", sa.Integer(), nullable=False),
        sa.Column("newest_checkpoint", sa.BigInteger(), nullable=True),
        sa.Column("cursor", sa.JSON(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("queued_at", MOMENT, nullable=False),
        sa.Column("start_time", MOMENT, nullable=True),
        sa.Column("end_time", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_training_jobs_project_id_projects", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_training_jobs_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_training_jobs"),
    )
    op.create_index("ix_training_jobs_project_id_created_at", "training_jobs", ["project_id", "created_at"])
    op.create_index("ix_training_jobs_status_queued_at", "training_jobs", ["status", "queued_at"])
    op.create_index("ix_training_jobs_user_id_created_at", "training_jobs", ["user_id", "created_at"])
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("best", sa.Boolean(), nullable=False),
        sa.Column("saved_at", MOMENT, nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["training_jobs.id"], name="fk_checkpoints_job_id_training_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.UniqueConstraint("job_id", "path", name="uq_checkpoints_job_id_path"),
    )
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["training_jobs.id"], name="fk_job_events_job_id_training_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "position", name="pk_job_events"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "job_shares",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["training_jobs.id"], name="fk_job_shares_job_id_training_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_job_shares"),
        sa.UniqueConstraint("fingerprint", name="uq_job_shares_fingerprint"),
    )
    op.create_index("ix_job_shares_job_id", "job_shares", ["job_id"])
    op.create_table(
        "metric_series",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("axis", sa.String(length=8), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["training_jobs.id"], name="fk_metric_series_job_id_training_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_metric_series"),
        sa.UniqueConstraint("job_id", "name", "rank", name="uq_metric_series_job_id_name_rank"),
    )
    op.create_table(
        "metric_buckets",
        sa.Column("series_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("level", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["metric_series.id"],
            name="fk_metric_buckets_series_id_metric_series",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("series_id", "level", "bucket", "attempt", name="pk_metric_buckets"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "training_metrics",
        sa.Column("series_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("x", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["metric_series.id"],
            name="fk_training_metrics_series_id_metric_series",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("series_id", "x", "attempt", "seq", name="pk_training_metrics"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("training_metrics")
    op.drop_table("metric_buckets")
    op.drop_table("metric_series")
    op.drop_table("job_shares")
    op.drop_table("job_events")
    op.drop_table("checkpoints")
    op.drop_table("training_jobs")
    op.drop_table("workers")
