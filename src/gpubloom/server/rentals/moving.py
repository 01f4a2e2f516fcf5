"""Move a job that does not run to another machine, where it resumes from its newest checkpoint."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import CurrentDatabase, Database
from gpubloom.server.jobs.launch import (
    CurrentOfferService,
    decide,
    hardware_of,
    live_machines,
    set_default_limits,
    with_estimate,
)
from gpubloom.server.jobs.new_job_schemas import Dollars, FailoverPreference, Hours, OfferTaken
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.service import get_job, lock_own_job, queue_again, record_change
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS, after, name_of
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.problems import Conflict
from gpubloom.server.schema import Schema

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


class Move(Schema):
    """The new machine. Limits that are left out keep their values; a rented machine always has limits."""

    offer: OfferTaken | None = Field(None, description="The offer to rent. None: a machine of this server.")
    budget: Dollars | None = None
    max_hours: Hours | None = None
    failover: Annotated[list[OfferTaken], Field(max_length=5)] | None = Field(
        [],
        description="Offers to take, in this order, when the chosen one has no machine. An empty list: none. "
        "Null: the same GPU at other connected providers, by `failover_by`.",
    )
    failover_by: FailoverPreference = FailoverPreference()


@router.post("/move")
async def move_job(
    job_id: UUID,
    body: Move,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    offer_service: CurrentOfferService,
) -> JobOut:
    """Move a queued, paused, failed or cancelled job to another machine. Its history is kept."""
    async with database.read() as session:
        job, _ = await get_job(session, principal, job_id)
        _check_can_move(job)
        offer = None if body.offer is None else await offer_service.take(session, principal, body.offer)
    changes = await _changes(database, job, offer)
    failover = None
    if offer is not None:
        budget = job.budget if body.budget is None else body.budget
        async with database.read() as session:
            failover = await offer_service.alternatives(
                session, principal, changes["offer"], body.failover, body.failover_by, budget
            )
    async with database.write() as session:
        job, project = await lock_own_job(session, principal, job_id)
        _check_can_move(job)
        for name, value in changes.items():
            setattr(job, name, value)
        if job.status != "queued":
            job.status = after("resume", job.status)
        job.want = "run"
        job.control_version += 1
        queue_again(job)
        if body.budget is not None:
            job.budget = body.budget
        if body.max_hours is not None:
            job.max_hours = body.max_hours
        # The person chose this machine; the offers of an earlier choice do not follow it.
        job.failover = failover
        set_default_limits(job)
        await record_change(session, principal, job, "training_job.moved")
        return await job_out(session, settings, job, project)


def _check_can_move(job: TrainingJob) -> None:
    if job.kind not in TOP_LEVEL_KINDS or job.kind == "run":
        raise Conflict(
            f"A job of kind {name_of(job.kind)} cannot move: it runs where its files are.",
            code="not_for_this_kind",
        )
    if job.status != "queued":
        after("resume", job.status)


async def _changes(database: Database, job: TrainingJob, offer: dict[str, Any] | None) -> dict[str, Any]:
    """What differs in the job's row; a training is planned anew for the GPU that it gets."""
    where = {"target": "local" if offer is None else offer["target"], "offer": offer}
    if offer is None:
        async with database.read() as session:
            machines = [hardware for hardware, _ in await live_machines(session)]
    else:
        machines = [hardware_of(offer)]
    if job.kind != "train":
        has_gpu = any(machine.gpus for machine in machines)
        return {**where, "gpus": offer["gpus"] if offer else int(has_gpu), "gpu_type": None}
    config = TrainConfig.model_validate({**job.config, "device": "auto"})
    launch = await decide(machines, config, gpu_type=None, host_memory=None)
    return {
        "target": where["target"],
        "offer": None if offer is None else with_estimate(offer, launch.plan.seconds),
        "config": launch.config.model_dump(mode="json"),
        "plan": launch.plan.model_dump(mode="json"),
        "gpus": launch.gpus if offer is None else offer["gpus"],
        "gpu_type": None,
    }
