"""The HTTP routes that answer questions about one run: what ran, its samples, whether it improved.

What ran and the samples are for the people of the job's project only; a share link does not reach them, as
prompts and command lines may be private.
"""

import math
from collections.abc import Iterable
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_RUN
from gpubloom.server.db.database import ReadSession
from gpubloom.server.jobs import service
from gpubloom.server.jobs.curves import Curve
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.metrics import read_curves
from gpubloom.server.jobs.run_answers import JobImprovement, JobSamples, WhatRan, samples_of, what_ran_of
from gpubloom.server.jobs.stream_routes import OwnJobId
from gpubloom.server.jobs.summary import read_summary
from gpubloom.traincard.improvement import CHANGE, LOSS, MARGIN, judge, newest_by_step

router = APIRouter(tags=["jobs"])

_POINTS = 5_000


@router.get("/jobs/{job_id}/what-ran", dependencies=[HOLDS_RUN])
async def read_what_ran(job_id: OwnJobId, settings: CurrentSettings) -> WhatRan:
    """Return what ran: commit and changes, command line, packages, machine, configs and datasets."""
    return await anyio.to_thread.run_sync(lambda: what_ran_of(run_directory(settings, job_id)))


@router.get("/jobs/{job_id}/samples", dependencies=[HOLDS_RUN])
async def read_samples(job_id: OwnJobId, settings: CurrentSettings) -> JobSamples:
    """Return what the model answers to the sample prompts of its run, step by step."""
    return await anyio.to_thread.run_sync(lambda: samples_of(run_directory(settings, job_id)))


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
