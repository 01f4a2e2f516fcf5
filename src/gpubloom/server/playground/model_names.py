"""What `model` means at /v1: a playground or a training, by id or name, with `:base` or `:tuned` behind."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import case
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import Principal
from gpubloom.server.jobs import service as jobs
from gpubloom.server.jobs.files import has_model, run_directory
from gpubloom.server.jobs.states import ENDED
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground.endpoint import read_endpoint
from gpubloom.server.playground.readiness import state_of
from gpubloom.server.playground.schemas import ModelCard, OpenPlayground
from gpubloom.server.playground.service import list_playgrounds, open_playground
from gpubloom.server.problems import InvalidInput, NotFound
from gpubloom.server.settings import Settings

_WHICH = ("base", "tuned")
_MOST_LISTED = 100


@dataclass(frozen=True)
class Served:
    """A serve job that was asked for, and which of its models."""

    job_id: UUID
    which: str | None


async def find_served(
    session: AsyncSession, principal: Principal, settings: Settings, model: object
) -> Served:
    """The playground that `model` means; it is opened when it is not there."""
    if not isinstance(model, str) or not model or len(model) > 200 or not model.isprintable():
        raise InvalidInput.for_field(
            "model", "Name a model: the id or the name of a playground or a training."
        )
    name, _, suffix = model.rpartition(":")
    name, which = (name, suffix) if suffix in _WHICH and name else (model, None)
    job = await _find(session, principal, name)
    if job.kind == "serve" and job.status not in ENDED:
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


async def _find(session: AsyncSession, principal: Principal, name: str) -> TrainingJob:
    matching = jobs.visible_to(principal).where(TrainingJob.kind.in_(("serve", "train")))
    try:
        matching = matching.where(TrainingJob.id == UUID(name))
    except ValueError:
        matching = matching.where(TrainingJob.name == name)
    # What runs before what has to be loaded, what was opened before what was only trained, the newest first.
    order = (
        case((TrainingJob.status.in_(ENDED), 1), else_=0),
        TrainingJob.kind,
        TrainingJob.created_at.desc(),
    )
    playgrounds_first = case((TrainingJob.kind == "serve", 0), else_=1)
    row = (await session.execute(matching.order_by(playgrounds_first, *order).limit(1))).first()
    if row is None:
        raise NotFound(
            f"There is no model {name!r} of yours. GET /v1/models lists what there is.",
            code="model_not_found",
        )
    job: TrainingJob = row[0]
    return job


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
