"""What `model` means at /v1: a playground or a training, by id or name, with `:base` or `:tuned` behind."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import and_, case, or_
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.jobs import service as jobs
from gpubloom.server.jobs.files import has_model, run_directory
from gpubloom.server.jobs.states import ENDED, Status
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground.endpoint import read_endpoint
from gpubloom.server.playground.readiness import state_of
from gpubloom.server.playground.schemas import ModelCard, OpenPlayground
from gpubloom.server.playground.service import list_playgrounds, open_playground
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.settings import Settings

_WHICH = ("base", "tuned")
_GOING: tuple[Status, ...] = (*ENDED, "cancelling")
_MOST_LISTED = 100


@dataclass(frozen=True)
class Served:
    """A serve job that was asked for, and which of its models."""

    job_id: UUID
    which: str | None


async def find_loaded(session: AsyncSession, principal: Principal, model: object) -> Served | None:
    """The playground that `model` means, when it is there; None when it has to be opened."""
    job, which = await _find(session, principal, model)
    return Served(job.id, which) if job.kind == "serve" and job.status not in _GOING else None


async def open_served(
    session: AsyncSession, principal: Principal, settings: Settings, model: object
) -> Served:
    """The playground that `model` means, opened when it is not there."""
    job, which = await _find(session, principal, model)
    if job.kind == "serve" and job.status not in _GOING:
        return Served(job.id, which)
    if job.kind == "train":
        wanted = OpenPlayground(job_id=job.id)
    elif job.parent_id is not None:
        wanted = OpenPlayground(job_id=job.parent_id, checkpoint_id=job.checkpoint_id)
    elif job.model_id is not None:
        wanted = OpenPlayground(model_id=job.model_id)
    else:
        raise NotFound("The model behind this playground was deleted.", code="model_not_found")
    opened, _ = await open_playground(session, principal, settings, wanted)
    return Served(opened.id, which)


async def _find(session: AsyncSession, principal: Principal, model: object) -> tuple[TrainingJob, str | None]:
    """A playground or a training, and what stands behind the colon."""
    if not isinstance(model, str) or not model or len(model) > 200 or not model.isprintable():
        raise InvalidInput.for_field(
            "model", "Name a model: the id or the name of a playground or a training."
        )
    name, _, suffix = model.rpartition(":")
    name, which = (name, suffix) if suffix in _WHICH and name else (model, None)
    matching = jobs.visible_to(principal).where(TrainingJob.kind.in_(("serve", "train")))
    try:
        matching = matching.where(TrainingJob.id == UUID(name))
    except ValueError:
        finished = or_(TrainingJob.kind == "serve", TrainingJob.status == "completed")
        matching = matching.where(TrainingJob.name == name, finished)
    # What is loaded before what has to be, then the newest: several may have one name.
    loaded = and_(TrainingJob.kind == "serve", TrainingJob.status.not_in(_GOING))
    newest = matching.order_by(case((loaded, 0), else_=1), TrainingJob.created_at.desc(), TrainingJob.id)
    row = (await session.execute(newest.limit(1))).first()
    if row is None:
        raise NotFound(
            f"There is no model {name!r} of yours. GET /v1/models lists what there is.",
            code="model_not_found",
        )
    return row[0], which


async def list_models(session: AsyncSession, principal: Principal, settings: Settings) -> list[ModelCard]:
    """Playgrounds that run, then trainings with a finished model; newest first."""
    running = [job for job, _ in await list_playgrounds(session, principal)]
    loaded = {job.parent_id for job in running if job.checkpoint_id is None}
    trained = await session.execute(
        jobs.visible_to(principal)
        .where(TrainingJob.kind == "train", TrainingJob.status == "completed")
        .order_by(TrainingJob.created_at.desc(), TrainingJob.id)
        .limit(_MOST_LISTED)
    )
    cards = []
    for job in [*running, *(row[0] for row in trained)]:
        if job.kind == "train" and (job.id in loaded or not has_model(settings, job.id)):
            continue
        ready = (
            job.kind == "serve" and state_of(job, read_endpoint(run_directory(settings, job.id))) == "ready"
        )
        cards.append(
            ModelCard(id=str(job.id), created=int(job.created_at.timestamp()), name=job.name, ready=ready)
        )
    return cards
