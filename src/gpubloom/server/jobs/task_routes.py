"""The addresses that ask something of a trained model: evaluate it, export it."""

from uuid import UUID

from fastapi import APIRouter

from gpubloom.server.accounts.current import CurrentSettings
from gpubloom.server.accounts.hub_tokens import open_hub_token
from gpubloom.server.accounts.principal import CurrentPrincipal
from gpubloom.server.db.session import WriteSession
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.task_schemas import NewEvaluation, NewExport
from gpubloom.server.jobs.tasks import create_task, subject_of
from gpubloom.server.problems import Conflict

router = APIRouter(prefix="/training-jobs/{job_id}", tags=["training jobs"])


@router.post("/evaluations", status_code=201)
async def evaluate(
    job_id: UUID,
    body: NewEvaluation,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    """Measure a trained model beside what it was tuned from; the answer becomes the new job's result."""
    subject = await subject_of(session, principal, settings, job_id, body.checkpoint_id)
    fields = {"kind": "evaluate", **body.model_dump(exclude={"checkpoint_id"})}
    job = await create_task(session, principal, subject, fields)
    return await job_out(session, settings, job, subject.project)


@router.post("/exports", status_code=201)
async def export(
    job_id: UUID,
    body: NewExport,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    """Write a trained model in the form that others read; its files are downloaded from the new job."""
    subject = await subject_of(session, principal, settings, job_id, body.checkpoint_id)
    # Only whether there is one: the worker writes it beside the task, just before that begins.
    if body.hub is not None and await open_hub_token(session, settings, principal.id) is None:
        raise Conflict(
            "There is no token for the hub to push with. Store one under Settings first.",
            code="no_hub_token",
        )
    fields = {"kind": "export", **body.model_dump(exclude={"checkpoint_id"})}
    job = await create_task(session, principal, subject, fields)
    return await job_out(session, settings, job, subject.project)
