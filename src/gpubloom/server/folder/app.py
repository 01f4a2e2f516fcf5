"""The small app behind `bloom ui`: the API routes that the run list and the page of a run use, over a folder.

It listens on loopback only. Other people may use the same machine, and a page of another site may know the
port: every request under /api needs the cookie that the printed link sets, names this machine as its host
(DNS rebinding), and changes nothing unless it comes from a page of this server.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, TypeVar
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.middleware import Middleware

import gpubloom
from gpubloom.runs.comparing import compare
from gpubloom.runs.schemas import Comparison, Overlay, RunList
from gpubloom.server.accounts.schemas import AuthState, UserOut
from gpubloom.server.clock import now
from gpubloom.server.folder import run_page
from gpubloom.server.folder.runs import FolderRuns
from gpubloom.server.folder.views import FolderViews
from gpubloom.server.jobs.metric_schemas import Curves
from gpubloom.server.jobs.run_answers import JobImprovement, JobSamples, WhatRan, samples_of, what_ran_of
from gpubloom.server.jobs.run_watch import log_matches, log_page
from gpubloom.server.jobs.schemas import Checkpoints, JobOut, LogMatches, LogPage
from gpubloom.server.jobs.stream_frames import TICK, EventStream, reset_event
from gpubloom.server.problems import Conflict, NotSignedIn, UnexpectedErrors, install_problem_handlers
from gpubloom.server.runs.asked import AskedList, AskedOverlay, ComparedIds
from gpubloom.server.runs.schemas import RunChange, RunLabels, ViewIn, ViewOut, Views
from gpubloom.server.schema import Storable
from gpubloom.server.security.middleware import BodyLimit, RequestGuard, SecurityHeaders
from gpubloom.server.web.routes import app_build, install_web_app
from gpubloom.traincard import Reading

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_ADVICE = "Open the address that `bloom ui` printed."
_POLL_SECONDS = 1.0
_PING_SECONDS = 15.0

Result = TypeVar("Result")


class Access:
    """Who may see the folder: whoever opened a link of this process, remembered by a cookie.

    The printed link works as often as it is opened. The link of the browser that `bloom ui` starts works
    once: other people on this machine can read command lines.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self._once: set[str] = set()
        self._cookie = secrets.token_urlsafe(24)

    def new_once(self) -> str:
        """A token for one use."""
        token = secrets.token_urlsafe(24)
        self._once.add(token)
        return token

    def enter(self, token: str, port: int | None) -> Response:
        """Set the cookie for somebody who opened a link, and go to the run list."""
        if token in self._once:
            self._once.discard(token)
        elif not secrets.compare_digest(token.encode(), self.token.encode()):
            raise NotSignedIn(f"This link is not valid any more. {_ADVICE}", code="link_unknown")
        answer = RedirectResponse("/runs", status_code=303, headers={"Cache-Control": "no-store"})
        # Browsers send a cookie to every port of a machine.
        answer.set_cookie(_cookie_name(port), self._cookie, httponly=True, samesite="strict", path="/")
        return answer

    def check(self, request: Request) -> None:
        given = request.cookies.get(_cookie_name(request.url.port), "")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), self._cookie.encode()):
            raise NotSignedIn(f"This page needs the link of `bloom ui`. {_ADVICE}", code="link_required")


def _cookie_name(port: int | None) -> str:
    return f"bloom_ui_{port or 80}"


def create_folder_app(folder: Path, access: Access, *, cache: Path | None = None) -> FastAPI:
    """The app over one folder. `cache`: where summaries of runs are kept."""
    app = FastAPI(
        title="GPU Bloom",
        version=gpubloom.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(SecurityHeaders, secure=False, app_build=app_build()),
            Middleware(UnexpectedErrors),
            Middleware(RequestGuard, hosts=HOSTS, advice=_ADVICE),
            Middleware(BodyLimit),
        ],
    )
    runs = FolderRuns(folder, cache)
    api = APIRouter(prefix="/api", dependencies=[Depends(access.check)])
    _add_list_routes(api, runs)
    _add_run_routes(api, runs)
    _add_view_routes(api, FolderViews(runs.folder))

    @api.get("/auth/state")
    async def read_state() -> AuthState:
        return _state(runs.folder)

    @app.get("/open")
    async def open_link(request: Request, token: Annotated[str, Query(max_length=100)] = "") -> Response:
        return access.enter(token, request.url.port)

    @app.get("/")
    async def first_page() -> Response:
        return RedirectResponse("/runs", status_code=307)

    app.include_router(api)
    install_problem_handlers(app)
    install_web_app(app)
    return app


def _state(folder: Path) -> AuthState:
    """Nobody has to sign in: the one who opened the link is the only user."""
    user = UserOut(
        id=run_page.USER_ID,
        name=folder.name or str(folder),
        email=str(folder),
        email_verified=None,
        image=None,
        role="member",
        created_at=now(),
        updated_at=now(),
    )
    return AuthState(
        setup_required=False,
        signup="closed",
        mail="outbox",
        oauth_providers=[],
        oidc_name="",
        passkeys=False,
        user=user,
        csrf_token=None,
        folder=str(folder),
    )


async def _in_thread(work: Callable[[], Result]) -> Result:
    return await anyio.to_thread.run_sync(work)


def _add_list_routes(api: APIRouter, runs: FolderRuns) -> None:
    @api.get("/runs")
    async def list_runs(asked: AskedList, project_id: UUID | None = None) -> RunList:
        def listed() -> RunList:
            wanted = None if project_id is None else str(project_id)
            return asked.answer([run for run in runs.runs() if wanted in (None, run.project_id)])

        return await _in_thread(listed)

    @api.get("/runs/overlay")
    async def read_overlay(asked: AskedOverlay) -> Overlay:
        return await _in_thread(
            lambda: asked.answer(runs.curves(asked.ids, asked.series, tokens=asked.tokens))
        )

    @api.get("/runs/compare")
    async def compare_runs(run: ComparedIds) -> Comparison:
        return await _in_thread(lambda: compare(runs.chosen(run)))

    @api.patch("/runs/{run_id}")
    async def change_run(run_id: UUID, body: RunChange) -> RunLabels:
        try:
            run = await _in_thread(lambda: runs.set_labels(run_id, tags=body.tags, notes=body.notes))
        except OSError as problem:
            raise Conflict(
                f"Tags and notes cannot be saved in this run directory ({problem.strerror}).",
                code="cannot_write",
            ) from problem
        return RunLabels(id=run_id, tags=list(run.tags), notes=run.notes)


def _add_view_routes(api: APIRouter, views: FolderViews) -> None:
    @api.get("/run-views")
    async def list_views() -> Views:
        return await _in_thread(views.read)

    @api.post("/run-views", status_code=201)
    async def create_view(body: ViewIn) -> ViewOut:
        return await _in_thread(lambda: views.create(body))

    @api.put("/run-views/{view_id}")
    async def change_view(view_id: UUID, body: ViewIn) -> ViewOut:
        return await _in_thread(lambda: views.change(view_id, body))

    @api.delete("/run-views/{view_id}", status_code=204)
    async def delete_view(view_id: UUID) -> None:
        await _in_thread(lambda: views.delete(view_id))


def _add_run_routes(api: APIRouter, runs: FolderRuns) -> None:
    @api.get("/jobs/{job_id}")
    async def read_job(job_id: UUID) -> JobOut:
        def read() -> JobOut:
            run, path = runs.get(job_id)
            return runs.read(job_id, lambda reading: run_page.job_of(run, path, reading))

        return await _in_thread(read)

    @api.get("/jobs/{job_id}/metrics")
    async def read_metrics(
        job_id: UUID,
        series: Annotated[list[str] | None, Query(max_length=64)] = None,
        first: Annotated[int | None, Query(alias="from", ge=0, le=2**53)] = None,
        last: Annotated[int | None, Query(alias="to", ge=0, le=2**53)] = None,
        points: Annotated[int, Query(ge=10, le=5_000)] = 1_000,
    ) -> Curves:
        return await _in_thread(
            lambda: runs.read(
                job_id,
                lambda reading: run_page.curves_of(
                    reading, names=series or (), first=first, last=last, points=points
                ),
            )
        )

    @api.get("/jobs/{job_id}/checkpoints")
    async def list_checkpoints(job_id: UUID) -> Checkpoints:
        def read() -> Checkpoints:
            run, _ = runs.get(job_id)
            return runs.read(job_id, lambda reading: run_page.checkpoints_of(run, reading))

        return await _in_thread(read)

    @api.get("/jobs/{job_id}/what-ran")
    async def read_what_ran(job_id: UUID) -> WhatRan:
        return await _in_thread(lambda: what_ran_of(runs.path(job_id)))

    @api.get("/jobs/{job_id}/samples")
    async def read_samples(job_id: UUID) -> JobSamples:
        return await _in_thread(lambda: samples_of(runs.path(job_id)))

    @api.get("/jobs/{job_id}/improvement")
    async def read_improvement(job_id: UUID) -> JobImprovement:
        return await _in_thread(lambda: runs.read(job_id, run_page.improvement_in))

    @api.get("/jobs/{job_id}/logs")
    async def read_logs(
        job_id: UUID,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        limit: Annotated[int, Query(ge=1, le=2_000)] = 500,
    ) -> LogPage:
        return await _in_thread(lambda: log_page(runs.pages, runs.path(job_id), after=after, limit=limit))

    @api.get("/jobs/{job_id}/logs/search")
    async def search_logs(
        job_id: UUID,
        text: Annotated[str, Query(min_length=1, max_length=200), Storable],
        limit: Annotated[int, Query(ge=1, le=2_000)] = 500,
    ) -> LogMatches:
        return await _in_thread(lambda: log_matches(runs.path(job_id), text, limit=limit))

    @api.get("/jobs/{job_id}/stream", response_class=EventStream)
    async def stream_job(
        request: Request,
        job_id: UUID,
        last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    ) -> EventStream:
        seen = last_event_id if last_event_id is not None else after
        state = await _in_thread(lambda: runs.read(job_id, _state_of))
        return EventStream(_changes(runs, job_id, state, seen), headers={"X-Accel-Buffering": "no"})


def _state_of(reading: Reading) -> tuple[int, str]:
    return run_page.position_of(reading), reading.status


async def _changes(
    runs: FolderRuns, job_id: UUID, state: tuple[int, str], seen: int | None
) -> AsyncIterator[bytes]:
    """Tells a page to load the run again when it has said more than the page has seen, or has ended."""
    position = state[0] if seen is None else seen
    waited = 0.0
    yield TICK.frame
    while True:
        # First, also for a page that is behind: it must not load the run again and again without a pause.
        await asyncio.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
        found = await _in_thread(lambda: runs.read(job_id, _state_of))
        if found != (position, state[1]):
            yield reset_event(found[0]).frame
            return
        if waited >= _PING_SECONDS:
            waited = 0.0
            yield TICK.frame
