"""Many jobs at once: a page of the list, and the totals of the dashboard.

A page costs the same few statements however many jobs there are. It reads single values out of the stored
JSON, never whole configs, plans or summaries, and no file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Float, Row, Select, and_, case, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.db.clock import database_time, seconds_between
from gpubloom.server.db.pages import Page
from gpubloom.server.jobs.schemas import JobListItem, JobTotals
from gpubloom.server.jobs.states import ACTIVE, MODEL_TASK_KINDS, TOP_LEVEL_KINDS, Kind, Status
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.traincard.number_encoding import NON_FINITE, encode_number

# What the list shows of a run, by its path in the stored summary.
_NUMBERS = {
    "step": ("step",),
    "total_steps": ("total_steps",),
    "epoch": ("epoch",),
    "epochs": ("epochs",),
    "eta_seconds": ("eta_seconds",),
    "loss": ("values", "train/loss", "value"),
    "rows_used": ("facts", "rows_used"),
    "rows_total": ("facts", "rows_total"),
    "cost_so_far": ("cost", "so_far"),
}
_WHOLE = {"step", "total_steps", "rows_used", "rows_total"}
_TEXTS = {"phase": ("phase",), "waiting": ("waiting",)}


@dataclass(frozen=True)
class JobFilter:
    """Which of a person's jobs; empty means all."""

    kinds: Sequence[Kind] = ()
    parent_id: UUID | None = None
    project_id: UUID | None = None
    statuses: Sequence[Status] = ()


async def list_jobs(
    session: AsyncSession, principal: Principal, wanted: JobFilter, page: Page
) -> tuple[list[JobListItem], int]:
    """A page of a person's jobs, newest first, and how many there are on all pages."""
    total = await session.scalar(_matching(select(func.count()), principal, wanted, page))
    statement = _matching(select(*_columns()), principal, wanted, page, joined=True)
    rows = await session.execute(
        statement.outerjoin(Dataset, Dataset.id == TrainingJob.dataset_id)
        .order_by(TrainingJob.created_at.desc(), TrainingJob.id)
        .limit(page.limit)
        .offset(page.offset)
    )
    found = list(rows)
    positions = await _queue_positions(session, found)
    return [_item(row, positions.get(row.id)) for row in found], total or 0


def _matching(
    statement: Select[Any], principal: Principal, wanted: JobFilter, page: Page, *, joined: bool = False
) -> Select[Any]:
    statement = statement.select_from(TrainingJob).where(TrainingJob.user_id == principal.id)
    if joined or page.search:
        statement = statement.join(Project, Project.id == TrainingJob.project_id)
    if wanted.kinds:
        statement = statement.where(TrainingJob.kind.in_(wanted.kinds))
    if wanted.parent_id is not None:
        statement = statement.where(TrainingJob.parent_id == wanted.parent_id)
    if wanted.project_id is not None:
        statement = statement.where(TrainingJob.project_id == wanted.project_id)
    if wanted.statuses:
        statement = statement.where(TrainingJob.status.in_(wanted.statuses))
    if page.search:
        names = (TrainingJob.name, Project.name)
        statement = statement.where(or_(*(name.icontains(page.search, autoescape=True) for name in names)))
    return statement


def _columns() -> list[ColumnElement[Any]]:
    own = (
        "id",
        "kind",
        "parent_id",
        "project_id",
        "name",
        "status",
        "target",
        "attempt",
        "error_code",
        "error_message",
        "start_time",
        "end_time",
        "active_seconds",
        "active_since",
        "created_at",
        "updated_at",
    )
    columns: list[Any] = [getattr(TrainingJob, name) for name in own]
    columns += [Project.name.label("project_name"), Dataset.name.label("dataset_name")]
    for name, path in {**_NUMBERS, **_TEXTS}.items():
        # As text: a value that a script reports may have any type.
        columns.append(TrainingJob.summary[path].as_string().label(name))
    columns.append(TrainingJob.offer["provider"].as_string().label("provider"))
    columns.append(TrainingJob.config["form"].as_string().label("export_form"))
    return columns


def _item(row: Row[Any], queue_position: int | None) -> JobListItem:
    values = dict(row._mapping)
    for name in _NUMBERS:
        values[name] = _number(values[name], whole=name in _WHOLE)
    for name in _TEXTS:
        values[name] = None if values[name] is None else str(values[name])
    if values["rows_used"] is None or values["rows_total"] is None:
        values["rows_used"] = values["rows_total"] = None
    del values["target"]
    return JobListItem(**values, queue_position=queue_position)


def _number(value: object, *, whole: bool) -> float | int | str | None:
    if value in NON_FINITE:
        return None if whole else str(value)
    try:
        number = float(str(value))
    except ValueError:
        return None
    if whole:
        return int(number) if number.is_integer() else None
    return encode_number(number)


async def queue_position(session: AsyncSession, job: TrainingJob) -> int | None:
    """How many jobs of the same kind of device wait before this one, plus one; None when it does not wait."""
    return (await _queue_positions(session, [job])).get(job.id)


async def _queue_positions(session: AsyncSession, jobs: Iterable[Any]) -> dict[UUID, int]:
    waiting = [job.id for job in jobs if job.status == "queued" and job.target == "local"]
    if not waiting:
        return {}
    # Jobs for a GPU, small tasks about a model and other jobs for the CPU wait in a queue each.
    queue = case((TrainingJob.gpus > 0, 0), (TrainingJob.kind.in_(MODEL_TASK_KINDS), 1), else_=2)
    oldest_first = (TrainingJob.queued_at, TrainingJob.id)
    own = func.row_number().over(partition_by=(queue, TrainingJob.user_id), order_by=oldest_first)
    turns = (
        select(TrainingJob.id, TrainingJob.queued_at, queue.label("queue"), own.label("turn"))
        .where(TrainingJob.status == "queued", TrainingJob.target == "local")
        .subquery()
    )
    # People take turns (`lease.py`): everybody's first job comes before anybody's second.
    in_turn = func.row_number().over(
        partition_by=turns.c.queue, order_by=(turns.c.turn, turns.c.queued_at, turns.c.id)
    )
    positions = select(turns.c.id, in_turn.label("position")).subquery()
    rows = await session.execute(
        select(positions.c.id, positions.c.position).where(positions.c.id.in_(waiting))
    )
    return {row.id: row.position for row in rows}


async def count_jobs(session: AsyncSession, principal: Principal) -> JobTotals:
    """How many trainings are in each state, and how long all of them trained together."""
    end = func.coalesce(
        TrainingJob.end_time,
        case((TrainingJob.status.in_(ACTIVE), database_time()), else_=TrainingJob.updated_at),
    )
    held = TrainingJob.active_seconds + func.coalesce(
        seconds_between(TrainingJob.active_since, database_time()), 0.0
    )
    # A run that was sent from elsewhere has held no machine of ours.
    has_held = or_(TrainingJob.active_seconds > 0, TrainingJob.active_since.is_not(None))
    seconds = case((has_held, held), else_=seconds_between(TrainingJob.start_time, end))
    counted = {
        "running": TrainingJob.status.in_(ACTIVE),
        "queued": TrainingJob.status == "queued",
        "completed": TrainingJob.status == "completed",
        "failed": TrainingJob.status == "failed",
    }
    row = (
        await session.execute(
            select(
                *(func.count(case((condition, 1))).label(name) for name, condition in counted.items()),
                func.coalesce(func.sum(case((seconds > 0, cast(seconds, Float)), else_=0.0)), 0.0).label(
                    "training_seconds"
                ),
            ).where(and_(TrainingJob.user_id == principal.id, TrainingJob.kind.in_(TOP_LEVEL_KINDS)))
        )
    ).one()
    return JobTotals(**row._mapping)
