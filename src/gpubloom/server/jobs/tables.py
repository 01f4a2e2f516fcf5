"""The tables of jobs and of what they say."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Index,
    SmallInteger,
    String,
    UniqueConstraint,
    event,
    inspect,
)
from sqlalchemy.orm import Mapped, mapped_column

from gpubloom.runs.stats import with_last_values
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.base import Identified, Table
from gpubloom.server.jobs.curves import Axis
from gpubloom.server.jobs.run_fields import run_fields
from gpubloom.server.jobs.states import ACTIVE, TOP_LEVEL_KINDS, Kind, Status
from gpubloom.server.models.tables import Model
from gpubloom.server.projects.tables import Project
from gpubloom.server.schema import NonFinite
from gpubloom.traincard.control import Want


class TrainingJob(Identified, Table):
    """A training job or a task, and its progress."""

    __tablename__ = "training_jobs"
    __table_args__ = (
        Index(None, "status", "queued_at"),
        Index(None, "user_id", "created_at"),
        Index(None, "project_id", "created_at"),
        Index(None, "user_id", "kind", "created_at"),
        # What has changed since alerts were looked for (`server.alerts.raising`).
        Index(None, "updated_at"),
    )

    # A project with jobs cannot be deleted: some of them may be training right now.
    project_id: Mapped[UUID] = mapped_column(ForeignKey(Project.id, ondelete="RESTRICT"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"))
    name: Mapped[str]
    kind: Mapped[Kind] = mapped_column(String(24), default="train", server_default="train")
    status: Mapped[Status] = mapped_column(String(16), default="queued")
    # A TrainConfig, or a task of `gpubloom.plan.tasks`.
    config: Mapped[dict[str, Any]]
    # Of a training, what was set by whoever started it; None in rows of earlier versions.
    requested_config: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # A task's answer, from its result.json.
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # The training that a task is about: its files are gone with it.
    parent_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("training_jobs.id", ondelete="CASCADE"), index=True
    )
    # No reference: tables that refer to each other could not be put in an order.
    checkpoint_id: Mapped[UUID | None]
    dataset_id: Mapped[UUID | None] = mapped_column(ForeignKey(Dataset.id, ondelete="SET NULL"), index=True)
    eval_dataset_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(Dataset.id, ondelete="SET NULL"), index=True
    )
    model_id: Mapped[UUID | None] = mapped_column(ForeignKey(Model.id, ondelete="SET NULL"), index=True)
    plan: Mapped[dict[str, Any]] = mapped_column(default=dict)
    # Where it runs: "local" is a machine with a worker, anything else a service by its name.
    target: Mapped[str] = mapped_column(String(32), default="local")
    # The offer that was taken (`rentals.taking`): provider, gpu, gpus, region, kind, hourly and more.
    offer: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # US dollars that all its attempts together may cost, and the longest time that they may take.
    budget: Mapped[float | None] = mapped_column(Double)
    max_hours: Mapped[float | None] = mapped_column(Double)
    # Names of the secrets that its attempts get; the values are read when one starts (`secrets.service`).
    secrets: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    # Further offers, as `offer` is: the next one is taken when the present one has no machine.
    failover: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    gpu_type: Mapped[str | None]
    gpus: Mapped[int] = mapped_column(default=0)
    host_memory: Mapped[int | None]

    # The requested state of the run; `control_version` grows with every change.
    want: Mapped[Want] = mapped_column(String(8), default="run")
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    saves: Mapped[int] = mapped_column(default=0)
    control_version: Mapped[int] = mapped_column(default=0)

    # The lease of the worker that follows the job, and the number of attempts.
    lease_token: Mapped[UUID | None]
    lease_expires: Mapped[datetime | None]
    worker: Mapped[str | None]
    # The machine that has the run directory; only workers there can continue the job.
    machine: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=5)
    attempts_without_progress: Mapped[int] = mapped_column(default=0)
    newest_checkpoint: Mapped[int | None] = mapped_column(BigInteger)

    # The file cursor is stored in one transaction with the events that were read up to it.
    cursor: Mapped[dict[str, Any]] = mapped_column(default=dict)
    # A StoredSummary.
    summary: Mapped[dict[str, Any]] = mapped_column(default=dict)
    position: Mapped[int] = mapped_column(BigInteger, default=0)
    # What the run list shows and filters by (`run_fields.py`): config, facts and figures; `run_metrics` are
    # MetricStats by series. None in rows of earlier versions that have not changed since.
    run_fields: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    run_metrics: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    tags: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    notes: Mapped[str] = mapped_column(default="", server_default="")
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None]

    queued_at: Mapped[datetime] = mapped_column(default=now)
    start_time: Mapped[datetime | None]
    end_time: Mapped[datetime | None]
    # Time on a machine, without queue and pauses: of the attempts before, and since when this one has one.
    active_seconds: Mapped[float] = mapped_column(Double, default=0.0)
    active_since: Mapped[datetime | None]
    # The checkpoint of another job that it continues from: job_id, checkpoint (a folder's name), step.
    branch: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)


def _note_run_fields(mapper: object, connection: object, row: TrainingJob) -> None:
    # Before the first insert, defaults are not there yet.
    kind: Kind | None = row.kind
    summary: dict[str, Any] | None = row.summary
    kind, summary = kind or "train", summary or {}
    changed = inspect(row).attrs
    new_config = changed.config.history.has_changes()
    if kind in TOP_LEVEL_KINDS and (new_config or changed.summary.history.has_changes()):
        row.run_fields = run_fields(kind, row.config, summary, row.run_fields, same_config=not new_config)
        row.run_metrics = with_last_values(row.run_metrics or {}, summary.get("values"))


# Whoever changes a config or a summary, here or in a worker: the list knows it in the same transaction.
event.listen(TrainingJob, "before_insert", _note_run_fields)
event.listen(TrainingJob, "before_update", _note_run_fields)


@event.listens_for(TrainingJob.status, "set")
def _count_active_time(job: TrainingJob, status: Status, before: object, _: object) -> None:
    """A job holds a machine in the active states only: waiting and pausing take none of its time."""
    if status in ACTIVE and before not in ACTIVE:
        job.active_since = now()
    elif status not in ACTIVE and before in ACTIVE and job.active_since is not None:
        # A clock that was put back meanwhile must not take away what was counted before.
        took = max(0.0, (now() - job.active_since).total_seconds())
        job.active_seconds = (job.active_seconds or 0.0) + took
        job.active_since = None


class QueueTurn(Table):
    """When a worker last claimed a job of a person: who has waited longest for a turn comes first."""

    __tablename__ = "queue_turns"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    # By the database's clock.
    claimed_at: Mapped[datetime]


class MetricSeries(Table):
    """A curve of a job. Training curves run along steps, telemetry along seconds since 1970."""

    __tablename__ = "metric_series"
    __table_args__ = (UniqueConstraint("job_id", "name", "rank"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    job_id: Mapped[UUID] = mapped_column(ForeignKey("training_jobs.id", ondelete="CASCADE"))
    name: Mapped[str]
    rank: Mapped[int]
    axis: Mapped[Axis] = mapped_column(String(8))


class MetricPoint(Table):
    """One reported value. No chart can draw NaN and infinities: `value` is NULL, `non_finite` says which.

    Rows from before the column may say neither; they count as NaN.
    """

    __tablename__ = "training_metrics"
    # Clustered by its key on SQLite: a chart's range is then one contiguous read.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy declares it so

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    x: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    time: Mapped[float] = mapped_column(Double)
    value: Mapped[float | None] = mapped_column(Double)
    non_finite: Mapped[NonFinite | None] = mapped_column(String(9))


class MetricBucket(Table):
    """Many points in one: what the chart of a long run is drawn from. `metrics.py` has the widths.

    A bucket of level -1 counts the NaN and infinite values that lie in the bucket of level 1, and so on.
    """

    __tablename__ = "metric_buckets"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    series_id: Mapped[int] = mapped_column(
        ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    level: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    bucket: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    low: Mapped[float] = mapped_column(Double)
    high: Mapped[float] = mapped_column(Double)
    total: Mapped[float] = mapped_column(Double)
    count: Mapped[int] = mapped_column(BigInteger)


class JobEvent(Table):
    """One change of a job, of which browsers are told. Old ones are pruned.

    Holds no values: `points` names rows of `training_metrics` (`metrics.PointRange`), and what changed of the
    job is in the job's own row.
    """

    __tablename__ = "job_events"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    job_id: Mapped[UUID] = mapped_column(ForeignKey("training_jobs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(default=now)
    points: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    checkpoints: Mapped[bool] = mapped_column(default=False)


class Checkpoint(Identified, Table):
    """A checkpoint that a run reported."""

    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("job_id", "path"),)

    job_id: Mapped[UUID] = mapped_column(ForeignKey("training_jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    step: Mapped[int] = mapped_column(BigInteger)
    path: Mapped[str]
    size: Mapped[int | None] = mapped_column(BigInteger)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    # `metadata` of the event; SQLAlchemy reserves that name. None: saved by an earlier version.
    details: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    best: Mapped[bool] = mapped_column(default=False)
    saved_at: Mapped[datetime]
    removed: Mapped[bool] = mapped_column(default=False)


class Worker(Identified, Table):
    """A worker that has announced itself, and its machine."""

    __tablename__ = "workers"

    name: Mapped[str]
    hardware: Mapped[dict[str, Any]]
    # Why it claims no jobs at the moment: a stable code and a sentence.
    fault_code: Mapped[str | None]
    fault_message: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(default=now)
    last_seen_at: Mapped[datetime] = mapped_column(default=now)


class Machine(Table):
    """A machine with workers, by the name in its BLOOM_HOME. `machines.py` says when it is gone."""

    __tablename__ = "machines"

    name: Mapped[str] = mapped_column(primary_key=True)
    # By the database's clock, like `gone_at`.
    last_seen_at: Mapped[datetime]
    # Since when its jobs are free for others; empty again once it came back and stopped what it ran.
    gone_at: Mapped[datetime | None]


class JobShare(Identified, Table):
    """A read-only link to one job, until it is revoked."""

    __tablename__ = "job_shares"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("training_jobs.id", ondelete="CASCADE"), index=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
