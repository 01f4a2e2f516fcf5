"""The HTTP route that answers whether a run improved, from the evaluations that are stored of it."""

import math
from collections.abc import Iterable
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.db.database import ReadSession
from gpubloom.server.jobs import service
from gpubloom.server.jobs.metrics import Curve, read_curves
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.schema import Schema
from gpubloom.traincard.improvement import CHANGE, LOSS, MARGIN, Improvement, Verdict, judge, newest_by_step

router = APIRouter(tags=["jobs"])

_POINTS = 5_000


class EvaluatedStepOut(Schema):
    """One evaluation."""

    step: int = Field(description="0 is the base model.")
    loss: float


class ImprovementOut(Schema):
    """Whether the eval loss of a run fell, and how sure that is."""

    verdict: Verdict
    text: str = Field(description="The verdict in words, such as: No clear change.")
    first: EvaluatedStepOut = Field(description="The first evaluation.")
    lowest: EvaluatedStepOut
    latest: EvaluatedStepOut = Field(description="The last evaluation with a finite loss.")
    not_finite_since: int | None = Field(
        description="The step from which on the eval loss was NaN or infinite, if it is."
    )
    compared: EvaluatedStepOut = Field(description="What the change is measured at.")
    change: float = Field(description="Eval loss minus the first one.")
    low: float | None = Field(description="Lower end of the 95 % interval of the change, if known.")
    high: float | None = Field(description="Upper end of the 95 % interval of the change, if known.")
    has_best: bool = Field(description="Whether the lowest step may be called the best one.")
    interval: str | None = Field(description="The change and its interval in words.")
    line: str = Field(description="The answer in one line.")


class JobImprovement(Schema):
    """The answer for a job. None: it was not evaluated."""

    improvement: ImprovementOut | None

    @classmethod
    def of(cls, found: Improvement | None) -> "JobImprovement":
        return cls(improvement=None if found is None else ImprovementOut.model_validate(found.as_dict()))


@router.get("/jobs/{job_id}/improvement")
async def read_improvement(job_id: UUID, principal: CurrentPrincipal, session: ReadSession) -> JobImprovement:
    """Return whether the eval loss of a job improved, with the 95 % interval of its change."""
    job, _ = await service.get_job(session, principal, job_id)
    kinds = [finding.kind for finding in read_summary(job.summary).findings]
    names = (LOSS, CHANGE, MARGIN)
    curves = await read_curves(session, job.id, names=names, points=_POINTS)
    losses, changes, margins = (_by_step(curves, name) for name in names)
    return JobImprovement.of(judge(losses, changes, margins, kinds))


def _by_step(curves: Iterable[Curve], name: str) -> dict[int, float]:
    """By step, of rank 0."""
    mine = [curve for curve in curves if (curve.name, curve.rank, curve.axis) == (name, 0, "step")]
    finite = (row for curve in mine for row in zip(curve.attempt, curve.x, curve.value, strict=True))
    gaps = (
        (attempt, x, math.nan)
        for curve in mine
        for attempt, x in zip(curve.gaps.attempt, curve.gaps.x, strict=True)
    )
    # A thinned point may stand for finite values and others.
    return newest_by_step([*gaps, *finite])
