"""The addresses that tell a job what to do."""

from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, BackgroundTasks

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.session import WriteSession
from gpubloom.server.jobs import service
from gpubloom.server.jobs.files import remove_run, remove_transport, run_directory
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import Extension, JobOut, LiveSettings
from gpubloom.server.jobs.states import Action
from gpubloom.server.problems import InvalidInput

router = APIRouter(prefix="/training-jobs/{job_id}", tags=["training jobs"])


async def _ask(
    action: Action,
    job_id: UUID,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    job, project = await service.ask(
        session, principal, job_id, action, machine_timeout=settings.machine_timeout
    )
    return await job_out(session, settings, job, project)


@router.post("/pause")
async def pause(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Save a checkpoint, stop, and free the device."""
    return await _ask("pause", job_id, principal, session, settings)


@router.post("/resume")
async def resume(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Go on from the newest checkpoint."""
    return await _ask("resume", job_id, principal, session, settings)


@router.post("/cancel")
async def cancel(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Stop for good; checkpoints stay."""
    return await _ask("cancel", job_id, principal, session, settings)


@router.post("/extend")
async def extend(
    job_id: UUID,
    body: Extension,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    """Train a completed job further."""
    job, project = await service.extend(
        session, principal, job_id, epochs=body.epochs, max_steps=body.max_steps
    )
    return await job_out(session, settings, job, project)


@router.post("/save")
async def save(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Save a checkpoint at the next step."""
    job, project = await service.save_now(session, principal, job_id)
    return await job_out(session, settings, job, project)


@router.patch("/settings")
async def change_settings(
    job_id: UUID,
    body: LiveSettings,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    """Change settings while the job trains."""
    changes = body.model_dump(exclude_none=True)
    if not changes:
        raise InvalidInput("Name at least one setting to change.")
    job, project = await service.change_settings(session, principal, job_id, changes)
    return await job_out(session, settings, job, project)


@router.delete("", status_code=204)
async def delete_job(
    job_id: UUID,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    after: BackgroundTasks,
) -> None:
    """Delete a job that has ended, with its run directory, checkpoints and model, and the tasks about it."""
    job, _ = await service.get_job(session, principal, job_id)
    was_remote = job.summary.get("cost") is not None
    gone = await service.delete_job(session, principal, job_id, machine_timeout=settings.machine_timeout)
    for deleted in gone:
        after.add_task(anyio.to_thread.run_sync, remove_run, run_directory(settings, deleted))
    if was_remote:
        after.add_task(anyio.to_thread.run_sync, remove_transport, settings, job_id)
