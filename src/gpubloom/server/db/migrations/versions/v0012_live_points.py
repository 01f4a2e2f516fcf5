"""Summaries in snake_case; events that name points instead of holding them; NaN told from infinity."""

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_RENAMED = {
    "totalSteps": "total_steps",
    "etaSeconds": "eta_seconds",
    "restartCount": "restart_count",
    "resumedFromStep": "resumed_from_step",
    "controlVersion": "control_version",
    "updatedAt": "updated_at",
    "damagedLines": "damaged_lines",
    "warningsLeftOut": "warnings_left_out",
}
_JOBS = sa.table("training_jobs", sa.column("id", sa.Uuid()), sa.column("summary", sa.JSON()))
_SERIES = sa.table(
    "metric_series",
    sa.column("id", sa.Integer()),
    sa.column("job_id", sa.Uuid()),
    sa.column("name", sa.String()),
    sa.column("rank", sa.Integer()),
)
_POINTS = sa.table(
    "training_metrics",
    sa.column("series_id", sa.Integer()),
    sa.column("x", sa.BigInteger()),
    sa.column("value", sa.Double()),
    sa.column("non_finite", sa.String()),
)
_NON_FINITE = ("NaN", "Infinity", "-Infinity")
_JOBS_AT_ONCE = 500
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("training_metrics", sa.Column("non_finite", sa.String(length=9), nullable=True))
    _rename_keys(_RENAMED, seen=_name_last_values)
    op.drop_table("job_events")
    _create_events(
        sa.Column("points", sa.JSON(), nullable=True), sa.Column("checkpoints", sa.Boolean(), nullable=False)
    )


def downgrade() -> None:
    op.drop_table("job_events")
    _create_events(
        sa.Column("kind", sa.String(length=16), nullable=False), sa.Column("data", sa.JSON(), nullable=False)
    )
    _rename_keys({new: old for old, new in _RENAMED.items()})
    op.drop_column("training_metrics", "non_finite")


def _create_events(*columns: sa.Column[Any]) -> None:
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            ["job_id"], ["training_jobs.id"], name="fk_job_events_job_id_training_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "position", name="pk_job_events"),
        sqlite_with_rowid=False,
    )


def _rename_keys(names: dict[str, str], *, seen: Callable[[Any, dict[str, Any]], None] | None = None) -> None:
    connection = op.get_bind()
    for job_id, summary in _summaries(connection):
        if seen is not None:
            seen(job_id, summary)
        renamed = {names.get(name, name): value for name, value in summary.items()}
        if renamed.keys() != summary.keys():
            connection.execute(sa.update(_JOBS).where(_JOBS.c.id == job_id).values(summary=renamed))


def _summaries(connection: sa.Connection) -> Iterator[tuple[Any, dict[str, Any]]]:
    page = sa.select(_JOBS.c.id, _JOBS.c.summary).order_by(_JOBS.c.id).limit(_JOBS_AT_ONCE)
    rows = connection.execute(page).all()
    while rows:
        for job_id, summary in rows:
            if isinstance(summary, dict):
                yield job_id, summary
        rows = connection.execute(page.where(_JOBS.c.id > rows[-1].id)).all()


def _name_last_values(job_id: Any, summary: dict[str, Any]) -> None:
    """Until now only the summary says which of the three a last value was."""
    values = summary.get("values")
    for name, last in values.items() if isinstance(values, dict) else ():
        if not isinstance(last, dict) or last.get("value") not in _NON_FINITE:
            continue
        if not isinstance(last.get("step"), int):
            continue
        series = sa.select(_SERIES.c.id).where(
            _SERIES.c.job_id == job_id, _SERIES.c.name == name, _SERIES.c.rank == 0
        )
        op.get_bind().execute(
            sa.update(_POINTS)
            .where(_POINTS.c.series_id.in_(series), _POINTS.c.x == last["step"])
            .where(_POINTS.c.value.is_(None))
            .values(non_finite=last["value"])
        )
