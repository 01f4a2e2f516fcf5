"""Assembles the server: middleware, subjects, the web app.

Default-deny: everything under /api asks `authenticate` first. What strangers may call is included in
`public` below, and nowhere else; a test walks all routes and compares them with this list.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware import Middleware

import gpubloom
from gpubloom.offers import load_prices
from gpubloom.server import health, offers
from gpubloom.server.accounts import (
    entry_routes,
    factor_routes,
    hub_tokens,
    me_routes,
    oauth,
    second_step_routes,
)
from gpubloom.server.accounts.mail import Mailer
from gpubloom.server.accounts.oauth_providers import configured_providers
from gpubloom.server.accounts.principal import authenticate
from gpubloom.server.accounts.sessions import SessionCookie
from gpubloom.server.accounts.shares import Shares
from gpubloom.server.administration import invitations
from gpubloom.server.administration import routes as administration_routes
from gpubloom.server.alerts import routes as alert_routes
from gpubloom.server.alerts.delivery import keep_alerting
from gpubloom.server.audit.maintenance import sign_migrated
from gpubloom.server.datasets import document_routes
from gpubloom.server.datasets import routes as dataset_routes
from gpubloom.server.db.database import Database
from gpubloom.server.db.migrate import current_revision, upgrade
from gpubloom.server.jobs import (
    base_model_routes,
    checkpoint_actions,
    checkpoint_routes,
    download_routes,
    launch_routes,
    preflight_routes,
    run_answer_routes,
    share_routes,
    stream_routes,
    tasks,
    training_job_routes,
)
from gpubloom.server.jobs import routes as job_routes
from gpubloom.server.jobs.inputs import find_use
from gpubloom.server.jobs.recovery import keep_settling
from gpubloom.server.jobs.run_watch import RunReadings
from gpubloom.server.jobs.streams import JobStreams
from gpubloom.server.ml_jobs import routes as ml_job_routes
from gpubloom.server.ml_jobs.schemas import FOLDERS
from gpubloom.server.models import routes as brought_model_routes
from gpubloom.server.pictures import routes as picture_routes
from gpubloom.server.pictures.service import take_over
from gpubloom.server.playground import openai_routes
from gpubloom.server.playground import routes as playground_routes
from gpubloom.server.playground.proxy import new_client
from gpubloom.server.problems import MEDIA_TYPE, ProblemBody, UnexpectedErrors, install_problem_handlers
from gpubloom.server.projects import routes as project_routes
from gpubloom.server.questions import routes as question_routes
from gpubloom.server.rentals import bucket_routes, moving, provider_routes, run_files, stored_artifacts
from gpubloom.server.rentals import routes as rental_routes
from gpubloom.server.rentals.offer_service import OfferService
from gpubloom.server.rentals.price_book import PriceBook
from gpubloom.server.runs import receiving
from gpubloom.server.runs import routes as run_routes
from gpubloom.server.scripts import routes as script_routes
from gpubloom.server.scripts.reading import ScriptProcesses
from gpubloom.server.secrets import routes as secret_routes
from gpubloom.server.security.middleware import BodyLimit, RequestGuard, SecurityHeaders
from gpubloom.server.security.server_paths import HiddenPaths
from gpubloom.server.settings import Settings
from gpubloom.server.storage import routes as storage_routes
from gpubloom.server.storage.uploads import UPLOADS
from gpubloom.server.web.routes import app_build, install_web_app

_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemBody, "content": {MEDIA_TYPE: {}}, "description": "Error"}
}


def create_app(settings: Settings) -> FastAPI:
    """The whole web service for one set of settings."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.uploads.mkdir(exist_ok=True)
        before = await anyio.to_thread.run_sync(current_revision, settings.database)
        await anyio.to_thread.run_sync(upgrade, settings.database)
        app.state.database = Database(settings.database, settings.home)
        await sign_migrated(app.state.database, settings.home, before)
        await checkpoint_actions.finish_removals(app.state.database, settings)
        app.state.streams = JobStreams(app.state.database)
        app.state.shares = Shares(settings)
        app.state.script_processes = ScriptProcesses(settings.sandbox_mode)
        app.state.playground = new_client()
        tasks = [
            asyncio.create_task(keep_settling(app.state.database, settings.machine_timeout)),
            asyncio.create_task(
                receiving.keep_watching(app.state.database, settings, app.state.run_readings)
            ),
            asyncio.create_task(keep_alerting(app.state.database, settings, app.state.mailer)),
        ]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.state.script_processes.close()
        await app.state.playground.aclose()
        await app.state.streams.close()
        await app.state.database.close()

    app = FastAPI(
        title="GPU Bloom",
        version=gpubloom.__version__,
        openapi_url="/api/openapi.json",
        # The interactive pages load scripts from elsewhere; nothing here does.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[
            Middleware(SecurityHeaders, secure=settings.secure, app_build=app_build()),
            Middleware(HiddenPaths, home=settings.home, uploads=settings.uploads),
            Middleware(UnexpectedErrors),
            Middleware(RequestGuard, hosts=settings.hosts),
            Middleware(
                BodyLimit,
                larger={**FOLDERS, **picture_routes.BODIES, **receiving.BODIES},
                unlimited={"PATCH": UPLOADS, "PUT": run_files.UPLOADS},
            ),
            Middleware(SessionCookie),
        ],
        responses=_RESPONSES,
        routes=_routes().routes,
    )
    app.state.settings = settings
    app.state.run_readings = RunReadings()
    app.state.prices = PriceBook(load_prices(settings.prices))
    app.state.offer_service = OfferService(settings, app.state.prices)
    # Each tells whether a dataset or a model is still in use.
    app.state.uses = (find_use,)
    app.state.mailer = Mailer(settings)
    app.state.oauth = configured_providers(settings)
    # Stores the profile picture of a sign-in provider.
    app.state.take_over_picture = take_over
    install_problem_handlers(app)

    install_web_app(app)
    return app


@cache
def _routes() -> APIRouter:
    """Every subject's routes. Servers of one process share them: FastAPI reads each handler's signature for
    them, which takes longer than all the rest of a start."""
    every = APIRouter(responses=_RESPONSES)

    public = APIRouter()
    public.include_router(health.router)
    public.include_router(entry_routes.router)
    public.include_router(second_step_routes.router)
    public.include_router(oauth.router)
    public.include_router(share_routes.public_router)
    public.include_router(run_files.router)
    every.include_router(public, prefix="/api")

    private = APIRouter(dependencies=[Depends(authenticate)])
    private.include_router(me_routes.router)
    private.include_router(picture_routes.router)
    private.include_router(storage_routes.router)
    private.include_router(oauth.linked_router)
    private.include_router(factor_routes.router)
    private.include_router(hub_tokens.router)
    private.include_router(project_routes.router)
    private.include_router(dataset_routes.router)
    private.include_router(document_routes.router)
    private.include_router(question_routes.router)
    private.include_router(brought_model_routes.router)
    private.include_router(launch_routes.router)
    private.include_router(preflight_routes.router)
    private.include_router(job_routes.router)
    private.include_router(stream_routes.router)
    private.include_router(run_answer_routes.router)
    private.include_router(tasks.router)
    private.include_router(checkpoint_routes.router)
    private.include_router(checkpoint_actions.router)
    private.include_router(base_model_routes.router)
    private.include_router(download_routes.router)
    private.include_router(share_routes.router)
    private.include_router(training_job_routes.router)
    private.include_router(playground_routes.router)
    private.include_router(run_routes.router)
    private.include_router(receiving.router)
    private.include_router(script_routes.router)
    private.include_router(ml_job_routes.router)
    private.include_router(offers.router)
    private.include_router(provider_routes.router)
    private.include_router(bucket_routes.router)
    private.include_router(rental_routes.router)
    private.include_router(stored_artifacts.router)
    private.include_router(moving.router)
    private.include_router(secret_routes.router)
    private.include_router(alert_routes.router)
    private.include_router(administration_routes.router)
    private.include_router(invitations.router)
    every.include_router(private, prefix="/api")
    # Outside of /api, where OpenAI's clients look; it asks for an API token itself.
    every.include_router(openai_routes.router)
    return every
