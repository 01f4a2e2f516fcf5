"""Puts several trainings beside each other."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan.differences import differences
from gpubloom.server.compare.schemas import Difference, Outcome
from gpubloom.server.jobs.metrics import LEVELS
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.tables import MetricBucket, MetricPoint, MetricSeries
from gpubloom.traincard.number_encoding import NON_FINITE

_FINAL = ("train/loss", "eval/loss", "eval/perplexity", "eval/accuracy")


def differences_of(jobs: list[JobOut]) -> list[Difference]:
    """What was asked differently; datasets and models by their names, not by where the server keeps them."""
    found = differences([_named(job) for job in jobs])
    return [Difference(path=each.path, values=list(each.values)) for each in found]


def _named(job: JobOut) -> dict[str, Any]:
    config = dict(job.config)
    data, model = dict(config.get("data") or {}), dict(config.get("model") or {})
    if job.dataset_name is not None:
        data["train_path"] = job.dataset_name
    if job.model_name is not None:
        tokenizer = dict(data.get("tokenizer") or {})
        if str(tokenizer.get("path")) == f"{model.get('path')}/tokenizer.json":
            data["tokenizer"] = {**tokenizer, "path": f"{job.model_name}/tokenizer.json"}
        model["path"] = job.model_name
    return {**config, "data": data, "model": model}


async def outcome_of(session: AsyncSession, job: JobOut) -> Outcome:
    """What came of a run so far."""
    summary = job.summary
    values = summary.get("values") or {}
    best, step = await _best_eval(session, job)
    seconds = None
    if job.start_time is not None:
        seconds = ((job.end_time or job.updated_at) - job.start_time).total_seconds()
    return Outcome(
        job_id=job.id,
        final={name: value for name in _FINAL if (value := _reported(values, name)) is not None},
        best_eval_loss=best,
        best_step=step,
        steps=summary.get("step"),
        tokens=_finite(values, "train/tokens_seen"),
        tokens_per_second=await _average(session, job, "train/tokens_per_second"),
        seconds=seconds,
        facts=summary.get("facts") or {},
    )


def _reported(values: dict[str, Any], name: str) -> Any:
    """The last value of a series; NaN and the infinities by their names."""
    found = values.get(name)
    value = found.get("value") if isinstance(found, dict) else None
    if isinstance(value, str) and value in NON_FINITE:
        return value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _finite(values: dict[str, Any], name: str) -> float | None:
    value = _reported(values, name)
    return value if isinstance(value, float) else None


async def _best_eval(session: AsyncSession, job: JobOut) -> tuple[float | None, int | None]:
    row = (
        await session.execute(
            select(MetricPoint.value, MetricPoint.x)
            .join(MetricSeries, MetricSeries.id == MetricPoint.series_id)
            .where(
                MetricSeries.job_id == job.id,
                MetricSeries.name == "eval/loss",
                MetricSeries.rank == 0,
                MetricPoint.value.is_not(None),
            )
            .order_by(MetricPoint.value, MetricPoint.x)
            .limit(1)
        )
    ).first()
    return (None, None) if row is None else (row[0], row[1])


async def _average(session: AsyncSession, job: JobOut, name: str) -> float | None:
    # Of the widest buckets: a long run has millions of points.
    return await session.scalar(
        select(func.sum(MetricBucket.total) / func.sum(MetricBucket.count))
        .join(MetricSeries, MetricSeries.id == MetricBucket.series_id)
        .where(
            MetricSeries.job_id == job.id,
            MetricSeries.name == name,
            MetricSeries.rank == 0,
            MetricBucket.level == LEVELS[-1],
        )
    )
