"""The OpenAI-compatible door: /v1 with an API token, `model` being a playground or a training.

Errors have OpenAI's form here, with our sentences. A model that is not loaded is loaded when it is first
asked something.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute

from gpubloom.server.accounts.principal import CurrentSettings, Principal, authenticate
from gpubloom.server.db.database import Database
from gpubloom.server.db.session import CurrentDatabase, ReadSession
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.playground.endpoint import Endpoint
from gpubloom.server.playground.model_names import find_loaded, list_models, open_served
from gpubloom.server.playground.proxy import forward
from gpubloom.server.playground.readiness import ready_endpoint
from gpubloom.server.playground.routes import client_of
from gpubloom.server.playground.schemas import ModelList
from gpubloom.server.problems import NotFound, NotSignedIn, Problem, invalid_fields
from gpubloom.server.settings import Settings

# Clients of this protocol expect an answer, not "try again": a small model is loaded in less.
_WAIT_SECONDS = 20.0


class _OpenAiRoute(APIRoute):
    """Tells problems in the form that OpenAI's clients read."""

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
        raise NotSignedIn("Send an API token: Authorization: Bearer bloom_… (Settings, API tokens).")
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
    """What can be named as `model`: playgrounds, and trainings that have a finished model."""
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
    asked = {**body, "model": _name_there(endpoint, served.which)}
    run_dir = run_directory(settings, served.job_id)
    return await forward(request, client_of(request), endpoint, path, asked, run_dir)


def _name_there(endpoint: Endpoint, which: str | None) -> str:
    """`base` or `tuned`, as the process calls them."""
    if which is None:
        return "tuned" if "tuned" in endpoint.models else endpoint.models[0]
    if which not in endpoint.models:
        raise NotFound(f"This model has no {which}: leave :{which} out.", code="model_not_found")
    return which


@router.post("/chat/completions", response_class=StreamingResponse)
async def chat(
    body: dict[str, Any],
    request: Request,
    principal: ProgramPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """OpenAI's chat completions. `model`: the id or name of a playground or a training; `:base` behind it
    asks what it was tuned from."""
    return await _talk("/v1/chat/completions", body, request, principal, database, settings)


@router.post("/completions", response_class=StreamingResponse)
async def complete(
    body: dict[str, Any],
    request: Request,
    principal: ProgramPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """OpenAI's completions; `model` as for chats."""
    return await _talk("/v1/completions", body, request, principal, database, settings)
