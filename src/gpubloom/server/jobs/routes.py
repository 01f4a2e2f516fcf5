"""The HTTP routes of jobs: list and read jobs, and control them."""

from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, BackgroundTasks, Query

import gpubloom
from gpubloom.plan import Plan, TrainConfig, run_files
from gpubloom.plan.tasks import TASK_FILE, TASK_SCRIPT, task_files, task_from
from gpubloom.scripts.task import script_task
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.db.pages import PageQuery
from gpubloom.server.jobs import listing, service
from gpubloom.server.jobs.files import read_text, remove_run, run_directory
from gpubloom.server.jobs.listing import JobFilter
from gpubloom.server.jobs.metric_schemas import ClockOut, CurveOut, Curves
from gpubloom.server.jobs.metrics import read_clock, read_curves
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import (
    CheckpointOut,
    Checkpoints,
    Extension,
    JobOut,
    Jobs,
    JobTotals,
    LiveSettings,
    Script,
)
from gpubloom.server.jobs.states import TOP_LEVEL_KINDS, Action, Kind, Status
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.storage.run_stores import remove_transport
from gpubloom.traincard.checkpoints import Checkpoints as CheckpointEntries

router = APIRouter(tags=["jobs"])

_MOST_SHOWN = 1 << 20


@router.get("/jobs")
async def list_jobs(
    principal: CurrentPrincipal,
    session: ReadSession,
    page: PageQuery,
    kind: Annotated[
        list[Kind] | None,
        Query(
            description="Kind of job. Default: training jobs and scripts. If parent_id is set, the "
            "default is tasks of every kind."
        ),
    ] = None,
    parent_id: Annotated[
        UUID | None, Query(description="Return only the tasks that belong to this job.")
    ] = None,
    project_id: Annotated[UUID | None, Query()] = None,
    status: Annotated[list[Status] | None, Query()] = None,
) -> Jobs:
    """List the user's jobs, newest first."""
    wanted = JobFilter(
        kinds=kind or (() if parent_id is not None else TOP_LEVEL_KINDS),
        parent_id=parent_id,
        project_id=project_id,
        statuses=status or (),
    )
    items, total = await listing.list_jobs(session, principal, wanted, page)
    return Jobs(items=items, total=total)


@router.get("/jobs/totals")
async def read_totals(principal: CurrentPrincipal, session: ReadSession) -> JobTotals:
    """Count the training jobs by state, and add up their training time."""
    return await listing.count_jobs(session, principal)


@router.get("/jobs/{job_id}")
async def read_job(
    job_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> JobOut:
    """Return one job."""
    job, project = await service.get_job(session, principal, job_id)
    return await job_out(session, settings, job, project)


@router.get("/jobs/{job_id}/metrics")
async def read_metrics(
    job_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    series: Annotated[list[str] | None, Query(max_length=64)] = None,
    first: Annotated[
        int | None, Query(alias="from", ge=0, le=2**53, description="First step to return.")
    ] = None,
    last: Annotated[int | None, Query(alias="to", ge=0, le=2**53, description="Last step to return.")] = None,
    points: Annotated[int, Query(ge=10, le=5_000, description="Maximum number of points per curve.")] = 1_000,
) -> Curves:
    """Return the curves of a job. Long curves are thinned; the minimum and maximum are kept."""
    job, _ = await service.get_job(session, principal, job_id)
    names = [name for name in series or [] if name.isprintable()]
    curves = await read_curves(session, job.id, names=names, first=first, last=last, points=points)
    clock = await read_clock(session, job.id) if first is None and last is None else []
    return Curves(
        position=job.position,
        series=[CurveOut.model_validate(curve) for curve in curves],
        clock=[ClockOut.model_validate(one) for one in clock],
    )


@router.get("/jobs/{job_id}/checkpoints")
async def list_checkpoints(job_id: UUID, principal: CurrentPrincipal, session: ReadSession) -> Checkpoints:
    """List the checkpoints of a job, newest first."""
    job, _ = await service.get_job(session, principal, job_id)
    rows = await service.list_checkpoints(session, job.id)
    summary = read_summary(job.summary)
    items = [CheckpointOut.model_validate(row, extra="ignore") for row in rows]
    best = _best_of(items) if summary.has_best else None
    items = [item.model_copy(update={"best": item.path == best}) for item in items]
    return Checkpoints(items=items, facts=summary.facts)


def _best_of(items: list[CheckpointOut]) -> str | None:
    """The checkpoint that the run called the best, or the one with the lowest eval loss, as on a card."""
    said = next((item.path for item in items if item.best), None)
    entries = [{"path": item.path, "metrics": item.metrics} for item in reversed(items)]
    return CheckpointEntries(entries, said).best()


@router.get("/jobs/{job_id}/script")
async def read_script(
    job_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> Script:
    """Return the script of this job and its requirements. You can run it yourself with the same result."""
    job, _ = await service.get_job(session, principal, job_id)
    if job.kind == "script":
        return await anyio.to_thread.run_sync(_own_script, run_directory(settings, job.id), job.config)
    try:
        if job.kind != "train":
            files = task_files(task_from(job.config), gpubloom.__version__)
            return Script(
                script=files[TASK_SCRIPT], requirements=files["requirements.txt"], config=files[TASK_FILE]
            )
        files = run_files(
            TrainConfig.model_validate(job.config), Plan.model_validate(job.plan), gpubloom.__version__
        )
    except ValueError as error:
        raise Conflict(
            "Another version of GPU Bloom created this job. Its script is in the run directory of the job.",
            code="other_version",
        ) from error
    return Script(
        script=files["train.py"], requirements=files["requirements.txt"], config=files["config.json"]
    )


def _own_script(run_dir: Path, config: dict[str, Any]) -> Script:
    task = script_task(config)
    try:
        text = read_text(run_dir, task.entry, _MOST_SHOWN)
    except OSError as problem:
        raise NotFound(
            f"{task.entry} is no longer in the folder of this job.", code="entry_not_found"
        ) from problem
    packages = "".join(f"{name}\n" for name in task.packages)
    return Script(script=text, requirements=packages, config=task.model_dump_json(indent=2))


async def _request_action(
    action: Action,
    job_id: UUID,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    job, project = await service.request_action(session, principal, job_id, action, settings)
    return await job_out(session, settings, job, project)


@router.post("/jobs/{job_id}/pause")
async def pause(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Save a checkpoint, stop the run and free the device."""
    return await _request_action("pause", job_id, principal, session, settings)


@router.post("/jobs/{job_id}/resume")
async def resume(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Continue from the newest checkpoint."""
    return await _request_action("resume", job_id, principal, session, settings)


@router.post("/jobs/{job_id}/cancel")
async def cancel(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Stop the job for good. Checkpoints are kept."""
    return await _request_action("cancel", job_id, principal, session, settings)


@router.post("/jobs/{job_id}/extend")
async def extend(
    job_id: UUID,
    body: Extension,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    """Train a completed job for more epochs or steps."""
    job, project = await service.extend(
        session, principal, job_id, settings, epochs=body.epochs, max_steps=body.max_steps
    )
    return await job_out(session, settings, job, project)


@router.post("/jobs/{job_id}/save")
async def save(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> JobOut:
    """Save a checkpoint at the next step."""
    job, project = await service.save_now(session, principal, job_id)
    return await job_out(session, settings, job, project)


@router.patch("/jobs/{job_id}/settings")
async def change_settings(
    job_id: UUID,
    body: LiveSettings,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
) -> JobOut:
    """Change settings of a running training job."""
    changes = body.model_dump(exclude_none=True)
    if not changes:
        raise InvalidInput("Send at least one setting to change.", code="nothing_to_change")
    job, project = await service.change_settings(session, principal, job_id, changes)
    return await job_out(session, settings, job, project)


@router.delete("/jobs/{job_id}", status_code=204)
async def delete_job(
    job_id: UUID,
    principal: CurrentPrincipal,
    session: WriteSession,
    database: CurrentDatabase,
    settings: CurrentSettings,
    after: BackgroundTasks,
) -> None:
    """Delete an ended or paused job together with its run directory, checkpoints, model and tasks."""
    job, _ = await service.get_job(session, principal, job_id)
    was_remote = read_summary(job.summary).cost is not None
    gone = await service.delete_job(session, principal, job_id, machine_timeout=settings.machine_timeout)
    for deleted in gone:
        after.add_task(anyio.to_thread.run_sync, remove_run, run_directory(settings, deleted))
    if was_remote:
        after.add_task(remove_transport, database, settings, job_id)
