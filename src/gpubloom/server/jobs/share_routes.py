"""Read-only links to a job: made and revoked by its owner, opened by anybody who has one.

The secret travels in a header, never in an address that a log could keep. It has 256 random bits, so
guessing needs no limit. The audit log says who opened a link: once an hour for each IP address.
"""

import contextlib
from pathlib import PurePath
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import JsonValue
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan import TrainConfig
from gpubloom.plan.data_config import DataConfig
from gpubloom.server.accounts.mail import page_link
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, client_address
from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import Actor, record, record_apart
from gpubloom.server.db.database import CurrentDatabase, ReadSession, WriteSession
from gpubloom.server.jobs import service
from gpubloom.server.jobs.metric_schemas import ClockOut, CurveOut, Curves
from gpubloom.server.jobs.metrics import read_clock, read_curves
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut, NewShare, ShareOut, Shares
from gpubloom.server.jobs.summary import Processes
from gpubloom.server.jobs.tables import JobShare, TrainingJob
from gpubloom.server.problems import Conflict, NotFound, TooManyRequests
from gpubloom.server.projects.tables import Project
from gpubloom.server.security.rates import Rate
from gpubloom.server.security.secrets import fingerprint, new_secret

router = APIRouter(prefix="/jobs/{job_id}/shares", tags=["sharing"])
public_router = APIRouter(prefix="/shared", tags=["sharing"])

# A page that is open asks every few seconds.
_RECORDED = Rate("share-opened", limit=1, seconds=60 * 60)


@router.get("")
async def list_shares(job_id: UUID, principal: CurrentPrincipal, session: ReadSession) -> Shares:
    """List the share links of a job that still work."""
    job, _ = await service.get_job(session, principal, job_id)
    rows = await session.scalars(
        select(JobShare).where(JobShare.job_id == job.id).order_by(JobShare.created_at)
    )
    return Shares(items=[ShareOut(id=row.id, created_at=row.created_at) for row in rows])


@router.post("", status_code=201)
async def create_share(
    job_id: UUID, principal: CurrentPrincipal, session: WriteSession, settings: CurrentSettings
) -> NewShare:
    """Create a read-only link. Only this response contains the link."""
    job, _ = await service.get_job(session, principal, job_id)
    if job.kind not in {"train", "run"}:
        # A task shows prompts and answers, which are often somebody's data.
        raise Conflict("Only training jobs and sent runs can be shared.", code="not_for_this_kind")
    secret = new_secret()
    share = JobShare(job_id=job.id, fingerprint=fingerprint(secret))
    session.add(share)
    await session.flush()
    _record(session, principal, "share.created", job, share.id)
    return NewShare(
        link=page_link(settings.address, "/shared", "token", secret),
        share=ShareOut(id=share.id, created_at=share.created_at),
    )


@router.delete("/{share_id}", status_code=204)
async def revoke_share(
    job_id: UUID, share_id: UUID, principal: CurrentPrincipal, session: WriteSession
) -> None:
    """Revoke a share link."""
    job, _ = await service.get_job(session, principal, job_id)
    ended = await session.execute(
        delete(JobShare).where(JobShare.id == share_id, JobShare.job_id == job.id).returning(JobShare.id)
    )
    if ended.one_or_none() is None:
        raise NotFound("This share link does not exist.")
    _record(session, principal, "share.revoked", job, share_id)


def _record(
    session: AsyncSession, principal: CurrentPrincipal, action: str, job: TrainingJob, share_id: UUID
) -> None:
    record(
        session, principal.actor, action, f"share:{share_id}", job.project_id, name=job.name, job=str(job.id)
    )


async def _shared_job(
    request: Request,
    database: CurrentDatabase,
    x_share_token: Annotated[str, Header(min_length=1, max_length=256)],
) -> tuple[TrainingJob, Project]:
    async with database.read() as session:
        row = (
            await session.execute(
                select(TrainingJob, Project, JobShare.id)
                .join(JobShare, JobShare.job_id == TrainingJob.id)
                .join(Project, Project.id == TrainingJob.project_id)
                .join(User, User.id == TrainingJob.user_id)
                # A link has the rights of its owner: it ends with the account.
                .where(JobShare.fingerprint == fingerprint(x_share_token), User.disabled.is_(False))
            )
        ).one_or_none()
    if row is None:
        raise NotFound("This link is invalid or was revoked.", code="link_invalid")
    job, project, share_id = row
    ip_address = client_address(request)
    with contextlib.suppress(TooManyRequests):
        await _RECORDED.count(database, str(share_id), ip_address or "unknown")
        await record_apart(
            database,
            Actor(None, ip_address),
            "share.opened",
            f"share:{share_id}",
            project.id,
            name=job.name,
            job=str(job.id),
        )
    return job, project


SharedJob = Annotated[tuple[TrainingJob, Project], Depends(_shared_job)]


@public_router.get("/job")
async def read_shared_job(shared: SharedJob, session: ReadSession, settings: CurrentSettings) -> JobOut:
    """Return the job of a share link. Fields that may contain server paths are left out."""
    out = await job_out(session, settings, *shared)
    # What a person's own program describes may be anything, such as its command line.
    facts = {} if out.kind == "run" else _without_locations(out.summary.facts)
    cost = out.summary.cost
    summary = out.summary.model_copy(
        update={
            "error": None,
            "findings": [],
            "alerts": [],
            "facts": facts,
            # What rented machines printed at their start, their names and addresses, the owner's budgets.
            "start": None,
            "waiting": None,
            "processes": Processes(),
            "marks": [mark for mark in out.summary.marks if mark.kind != "budget"],
            "cost": None if cost is None else cost.model_copy(update={"detail": None, "page": None}),
        }
    )
    return out.model_copy(
        update={
            "config": None if out.config is None else _without_paths(out.config, out.model_name),
            "requested_config": {},
            "summary": summary,
            "warnings": [],
            "warnings_left_out": 0,
            "dataset_id": None,
            "dataset_name": None,
            "eval_dataset_id": None,
            "eval_dataset_name": None,
            "mix": [],
            "model_id": None,
            "error_message": None,
            "budget": None,
            "failover": [],
        }
    )


def _without_paths(config: TrainConfig, model_name: str | None) -> TrainConfig:
    """The paths of data and models are left out; the model's name or folder name says which model it is."""
    model = config.model
    if model.path is not None:
        model = model.model_copy(update={"path": model_name or PurePath(model.path).name})
    return config.model_copy(update={"data": DataConfig(), "model": model})


def _without_locations(facts: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The facts about a run, without paths."""
    return {name: value for name, value in facts.items() if not str(value).startswith("/")}


@public_router.get("/metrics")
async def read_shared_metrics(
    shared: SharedJob,
    session: ReadSession,
    points: Annotated[int, Query(ge=10, le=5_000)] = 1_000,
) -> Curves:
    """Return the curves of the job of a share link."""
    curves = await read_curves(session, shared[0].id, points=points)
    clock = await read_clock(session, shared[0].id)
    return Curves(
        position=shared[0].position,
        series=[CurveOut.model_validate(curve) for curve in curves],
        clock=[ClockOut.model_validate(one) for one in clock],
    )
