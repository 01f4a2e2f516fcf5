"""The JSON of comparisons."""

from typing import Any
from uuid import UUID

from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.schema import MetricNumber, Schema


class Difference(Schema):
    """A field of the configs that is not the same in all; one value for each job, in their order."""

    path: str
    values: list[Any]


class Outcome(Schema):
    """What came of a run. Losses by their series: what it ended with, and the best it had."""

    job_id: UUID
    final: dict[str, MetricNumber]
    best_eval_loss: float | None
    best_step: int | None
    steps: int | None
    tokens: float | None
    tokens_per_second: float | None
    seconds: float | None
    facts: dict[str, Any]


class Comparison(Schema):
    """Several jobs side by side; curves come from each job's metrics."""

    jobs: list[JobOut]
    differences: list[Difference]
    outcomes: list[Outcome]
