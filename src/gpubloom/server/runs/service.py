"""The runs of a person from the database. Every query filters by the owner.

A list costs a few statements, whatever it filters: all that it needs of a run is stored in the run's row, and
read again only when the row has changed.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, Select, String, cast, delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.runs.overlay import TOKENS_SERIES, RunCurve, along_tokens, newest_attempt
from gpubloom.runs.table import Run
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.datasets.tables import Dataset
from gpubloom.server.jobs.metrics import read_series
from gpubloom.server.jobs.run_fields import run_fields
from gpubloom.server.jobs.service import lock_own_job
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.models.tables import Model
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.projects.tables import Project
from gpubloom.server.runs.schemas import MOST_VIEWS, RunChange, ViewIn
from gpubloom.server.runs.tables import RunView

_LONGEST_ERROR = 300
_COLUMNS: tuple[Any, ...] = (
    TrainingJob.id,
    TrainingJob.name,
    TrainingJob.kind,
    TrainingJob.status,
    TrainingJob.target,
    TrainingJob.project_id,
    TrainingJob.attempt,
    TrainingJob.error_message,
    TrainingJob.start_time,
    TrainingJob.end_time,
    TrainingJob.active_seconds,
    TrainingJob.active_since,
    TrainingJob.created_at,
    TrainingJob.updated_at,
    TrainingJob.position,
    # As text: compared with what was read before.
    cast(TrainingJob.tags, String).label("tags"),
    TrainingJob.notes,
    TrainingJob.worker,
)


def _own_runs(principal: Principal) -> Select[Any]:
    return (
        select(
            *_COLUMNS,
            Project.name.label("project_name"),
            Dataset.name.label("dataset_name"),
            Model.name.label("model_name"),
        )
        .join(Project, Project.id == TrainingJob.project_id)
        .outerjoin(Dataset, Dataset.id == TrainingJob.dataset_id)
        .outerjoin(Model, Model.id == TrainingJob.model_id)
        .where(TrainingJob.user_id == principal.id, TrainingJob.kind.in_(TOP_LEVEL_KINDS))
    )


async def read_runs(
    session: AsyncSession, principal: Principal, *, project_id: UUID | None = None
) -> list[Run]:
    """All runs of a person, newest first."""
    statement = _own_runs(principal)
    if project_id is not None:
        statement = statement.where(TrainingJob.project_id == project_id)
    return await _read(session, statement.order_by(TrainingJob.created_at.desc(), TrainingJob.id))


async def read_chosen(session: AsyncSession, principal: Principal, ids: Sequence[UUID]) -> list[Run]:
    """Some runs in the order of their ids. Those of others are not found."""
    found = {run.id: run for run in await _read(session, _own_runs(principal).where(TrainingJob.id.in_(ids)))}
    if any(str(run_id) not in found for run_id in ids):
        raise NotFound("This run does not exist.")
    return [found[str(run_id)] for run_id in ids]


async def _read(session: AsyncSession, statement: Select[Any]) -> list[Run]:
    rows = list(await session.execute(statement))
    changed = [row.id for row in rows if row.id not in _known or _known[row.id][0] != tuple(row)]
    documents = await _documents(session, changed)
    for row in rows:
        if row.id in documents:
            _known[row.id] = (tuple(row), _run(row, *documents[row.id]))
        _known.move_to_end(row.id)
    found = [_known[row.id][1] for row in rows]
    while len(_known) > _MOST_KNOWN:
        _known.popitem(last=False)
    return found


# Runs that were read, by id, with the columns that say whether they have changed: most runs in a list ended
# long ago, and parsing their JSON takes longer than all the rest.
_known: OrderedDict[UUID, tuple[tuple[Any, ...], Run]] = OrderedDict()
_MOST_KNOWN = 5_000
_IDS_AT_ONCE = 500


async def _documents(
    session: AsyncSession, ids: Sequence[UUID]
) -> dict[UUID, tuple[dict[str, Any], dict[str, Any]]]:
    """Fields and metrics of runs. Fields that an earlier version did not store are computed."""
    stored: dict[UUID, tuple[dict[str, Any] | None, dict[str, Any]]] = {}
    for first in range(0, len(ids), _IDS_AT_ONCE):
        rows = await session.execute(
            select(
                TrainingJob.id,
                TrainingJob.run_fields,
                TrainingJob.run_metrics,
            ).where(TrainingJob.id.in_(ids[first : first + _IDS_AT_ONCE]))
        )
        stored |= {row.id: (row.run_fields, row.run_metrics or {}) for row in rows}
    found = {run_id: (fields, metrics) for run_id, (fields, metrics) in stored.items() if fields is not None}
    missing = [run_id for run_id in stored if run_id not in found]
    for first in range(0, len(missing), _IDS_AT_ONCE):
        rows = await session.execute(
            select(TrainingJob.id, TrainingJob.kind, TrainingJob.config, TrainingJob.summary).where(
                TrainingJob.id.in_(missing[first : first + _IDS_AT_ONCE])
            )
        )
        for row in rows:
            found[row.id] = (run_fields(row.kind, row.config, row.summary), stored[row.id][1])
    return found


def _time_taken(row: Row[Any]) -> float | None:
    """Without queue and pauses, where that was counted."""
    if not row.active_seconds and row.active_since is None:
        return _seconds(row.start_time, row.end_time or row.updated_at)
    return float(row.active_seconds) + (_seconds(row.active_since, row.updated_at) or 0.0)


def _run(row: Row[Any], fields: dict[str, Any], metrics: dict[str, Any]) -> Run:
    config = fields["config"]
    if row.dataset_name is not None or row.model_name is not None:
        config = {**config, **_input_names(row.dataset_name, row.model_name)}
    started, ended = row.start_time, row.end_time
    seen = fields.get("updated_at")
    return Run(
        id=str(row.id),
        name=row.name,
        status=row.status,
        created=row.created_at.timestamp(),
        project=row.project_name,
        project_id=str(row.project_id),
        kind=row.kind,
        # The machine that sent a run stands where a worker does: neither runs on the other.
        source=(row.worker or "elsewhere") if row.kind == "run" else row.target,
        started=None if started is None else started.timestamp(),
        ended=None if ended is None else ended.timestamp(),
        seconds=_time_taken(row),
        seen=seen if isinstance(seen, int | float) else None,
        step=_whole(fields.get("step")),
        total_steps=_whole(fields.get("total_steps")),
        eta_seconds=fields.get("eta_seconds"),
        attempt=row.attempt,
        cost=fields.get("cost"),
        error=None if row.error_message is None else _first_line(row.error_message),
        tags=json.loads(row.tags) if row.tags else (),
        notes=row.notes,
        config=config,
        facts=fields["facts"],
        stats=metrics,
    )


def _input_names(dataset: str | None, model: str | None) -> dict[str, Any]:
    """Names of datasets and models instead of their paths on the server."""
    changed: dict[str, Any] = {}
    if dataset is not None:
        changed["data.train_path"] = dataset
    if model is not None:
        changed["model.path"] = model
    return changed


def _seconds(started: datetime | None, ended: datetime) -> float | None:
    return None if started is None else max(0.0, (ended - started).total_seconds())


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:_LONGEST_ERROR]


async def read_curves_of(
    session: AsyncSession, runs: Sequence[Run], series: str, points: int, *, tokens: bool
) -> dict[str, RunCurve]:
    """One metric of many runs in a few statements, by run id; along tokens where it is asked for."""
    by_id = {UUID(run.id): run for run in runs}
    wanted = await read_series(session, list(by_id), series, points)
    found = {str(job_id): _curve(by_id[job_id], columns) for job_id, columns in wanted.items()}
    if not tokens:
        return found
    seen = await read_series(session, list(by_id), TOKENS_SERIES, points)
    counted = {str(job_id): _curve(by_id[job_id], columns) for job_id, columns in seen.items()}
    moved = {
        run_id: along_tokens(curve, counted[run_id]) for run_id, curve in found.items() if run_id in counted
    }
    return {run_id: curve for run_id, curve in moved.items() if curve is not None}


def _curve(run: Run, columns: tuple[list[float], list[float], list[int]]) -> RunCurve:
    x, y = newest_attempt(*columns)
    return RunCurve(run.id, run.name, run.has_failed, x, y)


async def change_run(
    session: AsyncSession, principal: Principal, run_id: UUID, change: RunChange
) -> TrainingJob:
    """Change tags and notes."""
    job, _ = await lock_own_job(session, principal, run_id)
    if job.kind not in TOP_LEVEL_KINDS:
        raise NotFound("This run does not exist.")
    if change.tags is not None:
        job.tags = list(dict.fromkeys(change.tags))
    if change.notes is not None:
        job.notes = change.notes
    await session.flush()
    return job


def _own_views(principal: Principal) -> Select[RunView]:
    return select(RunView).where(RunView.user_id == principal.id)


async def list_views(session: AsyncSession, principal: Principal) -> list[RunView]:
    """A person's views, oldest first: they keep their places."""
    return list(await session.scalars(_own_views(principal).order_by(RunView.created_at, RunView.id)))


async def create_view(session: AsyncSession, principal: Principal, body: ViewIn) -> RunView:
    count = await session.scalar(select(func.count()).select_from(_own_views(principal).subquery()))
    if (count or 0) >= MOST_VIEWS:
        raise Conflict(f"You already have {MOST_VIEWS} views. Delete one first.", code="too_many_views")
    row = RunView(id=uuid4(), user_id=principal.id, name=body.name, view=_stored(body))
    session.add(row)
    await _flush(session, body)
    return row


async def change_view(session: AsyncSession, principal: Principal, view_id: UUID, body: ViewIn) -> RunView:
    row = await _get_view(session, principal, view_id)
    row.name, row.view = body.name, _stored(body)
    await _flush(session, body)
    return row


async def delete_view(session: AsyncSession, principal: Principal, view_id: UUID) -> None:
    row = await _get_view(session, principal, view_id)
    await session.execute(delete(RunView).where(RunView.id == row.id))


async def _get_view(session: AsyncSession, principal: Principal, view_id: UUID) -> RunView:
    row = await session.scalar(_own_views(principal).where(RunView.id == view_id))
    if row is None:
        raise NotFound("This view does not exist.")
    return row


def _stored(body: ViewIn) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude={"name"})


async def _flush(session: AsyncSession, body: ViewIn) -> None:
    try:
        await session.flush()
    except IntegrityError as problem:
        raise Conflict(
            f"You already have a view {body.name}. Choose another name.", code="view_exists"
        ) from problem
