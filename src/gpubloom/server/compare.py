"""Training jobs side by side: how their configs differ, and the results of each.

`gpubloom.plan.comparison` says what is compared and how; `bloom runs compare` uses it for run directories.
"""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import JsonValue
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan.comparison import BEST_SERIES, SPEED_SERIES, differences, outcome
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import ReadSession
from gpubloom.server.jobs.metrics import LEVELS
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.service import get_job
from gpubloom.server.jobs.tables import MetricBucket, MetricPoint, MetricSeries
from gpubloom.server.problems import InvalidInput
from gpubloom.server.schema import MetricNumber, Schema

router = APIRouter(tags=["jobs"])


class Difference(Schema):
    """A config field that differs between the jobs, with one value per job in the order of the jobs."""

    path: str
    values: list[JsonValue]


class Outcome(Schema):
    """The result of a run. For each loss series: the last value and the best value."""

    job_id: UUID
    final: dict[str, MetricNumber]
    best_eval_loss: float | None
    best_step: int | None
    steps: int | None
    tokens: float | None
    tokens_per_second: float | None
    seconds: float | None
    facts: dict[str, JsonValue]


class Comparison(Schema):
    """Several jobs side by side. `GET /jobs/{id}/metrics` returns the curves of each job."""

    jobs: list[JobOut]
    differences: list[Difference]
    outcomes: list[Outcome]


@router.get("/compare")
async def compare(
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    job: Annotated[
        list[UUID], Query(min_length=2, max_length=8, description="IDs of two to eight training jobs.")
    ],
) -> Comparison:
    """Compare training jobs: how their configs differ and which results they reached."""
    if len(set(job)) != len(job):
        raise InvalidInput.for_field(
            "job", "The same job is listed twice. List each job once.", code="same_run_twice"
        )
    shown = []
    for job_id in job:
        row, project = await get_job(session, principal, job_id)
        if row.kind != "train":
            raise InvalidInput.for_field(
                "job",
                f"{row.name} is not a training job. Only training jobs can be compared.",
                code="not_a_training",
            )
        shown.append(await job_out(session, settings, row, project))
    return Comparison(
        jobs=shown,
        differences=[
            Difference(path=each.path, values=list(each.values))
            for each in differences([_named(each) for each in shown])
        ],
        outcomes=[await _outcome(session, each) for each in shown],
    )


def _named(job: JobOut) -> dict[str, Any]:
    """The config with the names of datasets and models instead of their paths on the server."""
    config = {} if job.config is None else job.config.model_dump(mode="json")
    data, model = dict(config.get("data") or {}), dict(config.get("model") or {})
    if job.dataset_name is not None:
        data["train_path"] = job.dataset_name
    if job.model_name is not None:
        tokenizer = dict(data.get("tokenizer") or {})
        if str(tokenizer.get("path")) == f"{model.get('path')}/tokenizer.json":
            data["tokenizer"] = {**tokenizer, "path": f"{job.model_name}/tokenizer.json"}
        model["path"] = job.model_name
    return {**config, "data": data, "model": model}


async def _outcome(session: AsyncSession, job: JobOut) -> Outcome:
    best, best_step = await _best_evaluation(session, job)
    total, count = await _speed(session, job)
    seconds = None
    if job.start_time is not None:
        seconds = ((job.end_time or job.updated_at) - job.start_time).total_seconds()
    found = outcome(
        values={name: dict(last) for name, last in job.summary.values.items()},
        steps=job.summary.step,
        best_eval_loss=best,
        speed_total=total,
        speed_count=count,
        seconds=seconds,
    )
    return Outcome(job_id=job.id, best_step=best_step, facts=job.summary.facts, **asdict(found))


async def _best_evaluation(session: AsyncSession, job: JobOut) -> tuple[float | None, int | None]:
    row = (
        await session.execute(
            select(MetricPoint.value, MetricPoint.x)
            .join(MetricSeries, MetricSeries.id == MetricPoint.series_id)
            .where(
                MetricSeries.job_id == job.id,
                MetricSeries.name == BEST_SERIES,
                MetricSeries.rank == 0,
                MetricPoint.value.is_not(None),
            )
            .order_by(MetricPoint.value, MetricPoint.x)
            .limit(1)
        )
    ).first()
    return (None, None) if row is None else (row[0], row[1])


async def _speed(session: AsyncSession, job: JobOut) -> tuple[float, int]:
    # Of the widest buckets: a long run has millions of points.
    row = (
        await session.execute(
            select(func.sum(MetricBucket.total), func.sum(MetricBucket.count))
            .join(MetricSeries, MetricSeries.id == MetricBucket.series_id)
            .where(
                MetricSeries.job_id == job.id,
                MetricSeries.name == SPEED_SERIES,
                MetricSeries.rank == 0,
                MetricBucket.level == LEVELS[-1],
            )
        )
    ).one()
    # PostgreSQL adds up whole numbers as decimals.
    return float(row[0] or 0.0), int(row[1] or 0)
