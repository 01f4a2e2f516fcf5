"""The address of comparisons."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.compare.schemas import Comparison
from gpubloom.server.compare.service import differences_of, outcome_of
from gpubloom.server.db.database import ReadSession
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.service import get_job
from gpubloom.server.problems import InvalidInput

router = APIRouter(tags=["training jobs"])


@router.get("/compare")
async def compare(
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    job: Annotated[list[UUID], Query(min_length=2, max_length=8, description="Two to eight trainings.")],
) -> Comparison:
    """Trainings side by side: what was asked of them differently, and what came of it."""
    if len(set(job)) != len(job):
        raise InvalidInput.for_field("job", "A job cannot be compared with itself: name each once.")
    shown = []
    for job_id in job:
        row, project = await get_job(session, principal, job_id)
        if row.kind != "train":
            raise InvalidInput.for_field("job", f"{row.name} is no training; only trainings can be compared.")
        shown.append(await job_out(session, settings, row, project))
    return Comparison(
        jobs=shown,
        differences=differences_of(shown),
        outcomes=[await outcome_of(session, each) for each in shown],
    )
