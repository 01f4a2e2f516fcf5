"""The OpenAI-compatible API: /v1 with an API token.

`model` is a playground or a training, by id or name, with `:base` or `:tuned` behind. A model that is not
loaded is loaded when it is first asked something. Errors have OpenAI's form here, with our sentences.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from sqlalchemy import and_, case, or_
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan.tasks import SamplingSettings
from gpubloom.server.accounts.principal import CurrentSettings, Principal, authenticate
from gpubloom.server.db.database import CurrentDatabase, Database, ReadSession
from gpubloom.server.jobs import service as jobs
from gpubloom.server.jobs.files import has_model, run_directory
from gpubloom.server.jobs.states import ENDED, Status
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground.endpoint import read_endpoint
from gpubloom.server.playground.proxy import forward
from gpubloom.server.playground.routes import client_of
from gpubloom.server.playground.schemas import ModelCard, ModelList, OpenPlayground
from gpubloom.server.playground.service import list_playgrounds, open_playground, ready_endpoint, state_of
from gpubloom.server.problems import InvalidInput, NotFound, NotSignedIn, Problem, invalid_fields
from gpubloom.server.schema import described_as
from gpubloom.server.settings import Settings

# Clients of this protocol expect an answer, not "try again": a small model is loaded in less.
_WAIT_SECONDS = 20.0

_WHICH = ("base", "tuned")
_GOING: tuple[Status, ...] = (*ENDED, "cancelling")
_MOST_LISTED = 100


class _OpenAiRoute(APIRoute):
    """Returns problems in OpenAI's error format."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _error(invalid_fields(error.errors()))
            except Problem as problem:
                return _error(problem)

        return told


def _error(problem: Problem) -> JSONResponse:
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        problem.status, "invalid_request_error" if problem.status < 500 else "server_error"
    )
    field = problem.errors[0].field if problem.errors else None
    body = {"message": problem.detail, "type": kind, "param": field, "code": problem.code}
    return JSONResponse({"error": body}, status_code=problem.status, headers=problem.headers)


async def authenticate_program(request: Request) -> Principal:
    """Programs only: a page could make a browser send its cookie here."""
    if "authorization" not in request.headers:
        raise NotSignedIn(
            "Send an API token: Authorization: Bearer bloom_… Create a token under Settings, API tokens."
        )
    return await authenticate(request)


ProgramPrincipal = Annotated[Principal, Depends(authenticate_program)]
router = APIRouter(
    prefix="/v1",
    tags=["OpenAI-compatible"],
    route_class=_OpenAiRoute,
    dependencies=[Depends(authenticate_program)],
)


@router.get("/models")
async def list_served_models(
    principal: ProgramPrincipal, session: ReadSession, settings: CurrentSettings
) -> ModelList:
    """List the values for `model`: playgrounds, and training jobs with a finished model."""
    return ModelList(data=await list_models(session, principal, settings))


async def _talk(
    path: str,
    body: dict[str, Any],
    request: Request,
    principal: Principal,
    database: Database,
    settings: Settings,
) -> Response:
    async with database.read() as session:
        served = await find_loaded(session, principal, body.get("model"))
    if served is None:
        async with database.write() as session:
            served = await open_served(session, principal, settings, body.get("model"))
    endpoint = await ready_endpoint(database, settings, served.job_id, wait_seconds=_WAIT_SECONDS)
    asked = {**body, "model": endpoint.model_named(served.which)}
    run_dir = run_directory(settings, served.job_id)
    return await forward(request, client_of(request), endpoint, path, asked, run_dir)


GenerationFields = Annotated[dict[str, Any], described_as(SamplingSettings)]


@router.post("/chat/completions", response_class=StreamingResponse)
async def chat(
    body: GenerationFields,
    request: Request,
    principal: ProgramPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """Chat completions, compatible with OpenAI. `model`: id or name of a playground or a training job. Append
    `:base` for its base model.
    """
    return await _talk("/v1/chat/completions", body, request, principal, database, settings)


@router.post("/completions", response_class=StreamingResponse)
async def complete(
    body: GenerationFields,
    request: Request,
    principal: ProgramPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """Completions, compatible with OpenAI. `model` as for chat completions."""
    return await _talk("/v1/completions", body, request, principal, database, settings)


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
        raise NotFound("The model of this playground was deleted.", code="model_not_found")
    opened, _ = await open_playground(session, principal, settings, wanted)
    return Served(opened.id, which)


async def _find(session: AsyncSession, principal: Principal, model: object) -> tuple[TrainingJob, str | None]:
    """A playground or a training, and what stands behind the colon."""
    if not isinstance(model, str) or not model or len(model) > 200 or not model.isprintable():
        raise InvalidInput.for_field(
            "model",
            "Set model to the id or the name of a playground or a training job.",
            code="missing",
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
            f"You have no model named {name!r}. GET /v1/models lists your models.",
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
