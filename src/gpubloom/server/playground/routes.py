"""The web app's routes to a model: open a playground, follow its start, generate text."""

from typing import Any, cast
from uuid import UUID

import anyio.to_thread
import httpx2
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, Principal
from gpubloom.server.db.database import CurrentDatabase, Database, ReadSession
from gpubloom.server.jobs.files import run_directory
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.playground import service
from gpubloom.server.playground.endpoint import last_use, read_endpoint
from gpubloom.server.playground.proxy import forward
from gpubloom.server.playground.schemas import OpenPlayground, PlaygroundOut, Playgrounds
from gpubloom.server.playground.service import ready_endpoint, state_of
from gpubloom.server.settings import Settings

router = APIRouter(prefix="/playground", tags=["playground"])


def client_of(request: Request) -> httpx2.AsyncClient:
    """The app's client for the processes that hold models."""
    return cast("httpx2.AsyncClient", request.app.state.playground)


async def _shown(session: AsyncSession, settings: Settings, row: service.Row) -> PlaygroundOut:
    run_dir = run_directory(settings, row[0].id)
    endpoint = await anyio.to_thread.run_sync(read_endpoint, run_dir)
    state = state_of(row[0], endpoint)
    ready = endpoint if state == "ready" else None
    return PlaygroundOut(
        job=await job_out(session, settings, *row),
        state=state,
        models=[] if ready is None else list(ready.models),
        context_length=None if ready is None else ready.context_length,
        chat_template=None if ready is None else ready.chat_template,
        last_used_at=await anyio.to_thread.run_sync(last_use, run_dir),
    )


@router.get("")
async def list_playgrounds(
    principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> Playgrounds:
    """List the playgrounds that are loaded or loading."""
    rows = await service.list_playgrounds(session, principal)
    return Playgrounds(items=[await _shown(session, settings, row) for row in rows])


@router.post("", status_code=201)
async def open_playground(
    body: OpenPlayground, principal: CurrentPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> JobOut:
    """Load a model into a playground. If the model is already loaded, return its playground."""
    async with database.write() as session:
        row = await service.open_playground(session, principal, settings, body)
        return await job_out(session, settings, *row)


@router.get("/{job_id}")
async def read_playground(
    job_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> PlaygroundOut:
    """Return one playground and its state."""
    return await _shown(session, settings, await service.get_playground(session, principal, job_id))


async def _talk(
    path: str,
    job_id: UUID,
    body: dict[str, Any],
    request: Request,
    principal: Principal,
    database: Database,
    settings: Settings,
) -> Response:
    # A session that ends here: an answer may take minutes.
    async with database.read() as session:
        await service.get_playground(session, principal, job_id)
    endpoint = await ready_endpoint(database, settings, job_id)
    run_dir = run_directory(settings, job_id)
    return await forward(request, client_of(request), endpoint, path, body, run_dir)


@router.post("/{job_id}/v1/chat/completions", response_class=StreamingResponse)
async def chat(
    job_id: UUID,
    body: dict[str, Any],
    request: Request,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """Chat completions, compatible with OpenAI. `stream` sends token by token. `model`: base or tuned."""
    return await _talk("/v1/chat/completions", job_id, body, request, principal, database, settings)


@router.post("/{job_id}/v1/completions", response_class=StreamingResponse)
async def complete(
    job_id: UUID,
    body: dict[str, Any],
    request: Request,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> Response:
    """Completions, compatible with OpenAI. `stream` sends token by token."""
    return await _talk("/v1/completions", job_id, body, request, principal, database, settings)
