"""Tags, notes and saved views of runs, and what the run list shows of each run.

The figures of metrics that are here already are computed once, from the widest buckets.
"""

import json
from collections import defaultdict
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_WIDEST = 4
_JOBS_AT_ONCE = 200


def upgrade() -> None:
    with op.batch_alter_table("training_jobs") as batch:
        batch.add_column(sa.Column("run_fields", sa.JSON(), nullable=True))
        batch.add_column(sa.Column("run_metrics", sa.JSON(), nullable=False, server_default="{}"))
        batch.add_column(sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
        batch.add_column(sa.Column("notes", sa.String(), nullable=False, server_default=""))
    op.create_table(
        "run_views",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("view", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_run_views_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_run_views"),
        sa.UniqueConstraint("user_id", "name", name="uq_run_views_user_id_name"),
    )
    _fill_metrics()


def downgrade() -> None:
    op.drop_table("run_views")
    with op.batch_alter_table("training_jobs") as batch:
        for name in ("notes", "tags", "run_metrics", "run_fields"):
            batch.drop_column(name)


def _fill_metrics() -> None:
    """last, step, min, its step, max, its step, total, count of every training curve of rank 0."""
    connection = op.get_bind()
    jobs = sa.table(
        "training_jobs",
        sa.column("id", sa.Uuid()),
        sa.column("summary", sa.JSON()),
        sa.column("run_metrics", sa.JSON()),
    )
    series = sa.table("metric_series", *(sa.column(name) for name in ("id", "name", "rank", "axis")))
    series.append_column(sa.column("job_id", sa.Uuid()))
    buckets = sa.table(
        "metric_buckets", *(sa.column(n) for n in ("series_id", "level", "low", "high", "total", "count"))
    )
    ids = list(connection.execute(sa.select(jobs.c.id)).scalars())
    for first in range(0, len(ids), _JOBS_AT_ONCE):
        some = ids[first : first + _JOBS_AT_ONCE]
        found = connection.execute(
            sa.select(
                series.c.job_id,
                series.c.name,
                sa.func.min(buckets.c.low),
                sa.func.max(buckets.c.high),
                sa.func.sum(buckets.c.total),
                sa.func.sum(buckets.c.count),
            )
            .select_from(series.join(buckets, buckets.c.series_id == series.c.id))
            .where(series.c.job_id.in_(some), series.c.rank == 0, series.c.axis == "step")
            .where(buckets.c.level == _WIDEST)
            .group_by(series.c.job_id, series.c.name)
        )
        figures: dict[Any, dict[str, Any]] = defaultdict(dict)
        for job_id, name, low, high, total, count in found:
            figures[job_id][name] = (low, high, float(total), int(count))
        stored = connection.execute(sa.select(jobs.c.id, jobs.c.summary).where(jobs.c.id.in_(list(figures))))
        for job_id, summary in list(stored):
            read: dict[str, Any] = json.loads(summary) if isinstance(summary, str) else summary or {}
            values = read.get("values") or {}
            metrics = {}
            for name, (low, high, total, count) in figures[job_id].items():
                value = values.get(name)
                last: dict[str, Any] = value if isinstance(value, dict) else {}
                step = last.get("step") or 0
                # At which step the extremes were is not known of them.
                metrics[name] = [last.get("value", "NaN"), step, low, None, high, None, total, count]
            connection.execute(jobs.update().where(jobs.c.id == job_id).values(run_metrics=metrics))
