"""RunServer: one run as a page, a small JSON API, and a WebSocket that sends what changes.

Without viewers the server does nothing. With viewers it spends at most a hundredth of one core on reading the
run, however long the run is. Commands from the dashboard are checked and written to control.json.
"""

import asyncio
import contextlib
import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from gpubloom.errors import CodedError, code_of, shell_word
from gpubloom.metrics_server.access_control import Guard, Rejected, offered_protocols
from gpubloom.metrics_server.feed import Feed
from gpubloom.traincard.card.page import live_page
from gpubloom.traincard.control import ControlFile
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

PROTOCOL = "bloom.run.v1"
MAX_CONNECTIONS = 500
_GOING_AWAY = 1001
# As many messages may wait for one viewer; then the whole run replaces them.
_MAX_WAITING = 16

_FIELDS = ("want", "save", "set")
_MAX_SETTINGS = 20
_MAX_BODY_BYTES = 64 * 1024

_LOOK_SECONDS = 1.0
_FAREWELL_SECONDS = 1.0
_SHARE_OF_A_CORE = 0.01


def apply_commands(feed: Feed, body: bytes) -> None:
    """Writes down {"want": "pause" | "run"}, {"save": true}, {"set": {name: value}}, or several of them."""
    asked = _parsed(body)
    want, save, settings = asked.get("want"), asked.get("save", False), asked.get("set")
    _check(want, save, settings)
    if want == "run":
        _check_resuming(feed)
    control = ControlFile(feed.run_dir)
    try:
        if settings:
            control.set(settings)
        if save:
            control.save()
        if want:
            control.want(want)
    except (OSError, ValueError) as problem:
        raise Rejected(500, f"control.json could not be changed: {problem}.", code="cannot_write") from None


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        asked = parse_untrusted(body, most_bytes=_MAX_BODY_BYTES)
    except UntrustedJsonError as problem:
        raise Rejected(400, f"The request is not valid: {problem}.", code=problem.code) from None
    if not isinstance(asked, dict) or not asked or set(asked) - set(_FIELDS):
        raise Rejected(
            400, f"A command is an object with one or more of: {', '.join(_FIELDS)}.", code="invalid_control"
        )
    return asked


def _check(want: object, save: object, settings: object) -> None:
    if want not in (None, "run", "pause"):
        raise Rejected(422, "The field want must be run or pause.", code="invalid_control")
    if not isinstance(save, bool):
        raise Rejected(422, "The field save must be true or false.", code="invalid_control")
    if settings is None:
        return
    if not isinstance(settings, dict) or len(settings) > _MAX_SETTINGS:
        raise Rejected(
            422,
            f"The field set must be an object with at most {_MAX_SETTINGS} settings.",
            code="invalid_control",
        )
    for name, value in settings.items():
        is_plain = value is None or isinstance(value, str | bool | int | float)
        if not is_plain or len(str(value)) > 200:
            raise Rejected(
                422,
                f"{name[:100]} must be a number, a short text, true, false or null.",
                code="invalid_setting",
            )


def _check_resuming(feed: Feed) -> None:
    """A run whose process has ended continues only when a process is there to start it."""
    if not feed.resumes and not feed.control()["is_held"]:
        raise Rejected(
            409,
            f"The run's process has ended. Continue it with: bloom train --resume {shell_word(feed.run_dir)}",
            code="run_ended",
        )


class Viewer:
    """One open WebSocket. A viewer that does not keep up misses changes and gets the whole run instead."""

    def __init__(self, websocket: WebSocket, feed: Feed) -> None:
        self._websocket = websocket
        self._feed = feed
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._waiting.put_nowait(feed.whole())
        self._reason = ""
        self._has_all = asyncio.Event()

    def tell(self, message: str) -> None:
        """Queues a message. Never waits."""
        if self._waiting.qsize() >= _MAX_WAITING:
            while not self._waiting.empty():
                self._waiting.get_nowait()
            message = self._feed.whole()
        self._waiting.put_nowait(message)

    def dismiss(self, reason: str) -> None:
        """Closes the connection after the messages that wait."""
        self._reason = reason
        self._waiting.put_nowait(None)

    async def converse(self) -> None:
        """Returns when the viewer leaves or is dismissed. What the viewer sends changes nothing."""
        sending = asyncio.create_task(self._send())
        try:
            while (await self._websocket.receive())["type"] != "websocket.disconnect":
                pass
        finally:
            sending.cancel()

    async def _send(self) -> None:
        try:
            with contextlib.suppress(WebSocketDisconnect):
                while (message := await self._waiting.get()) is not None:
                    await self._websocket.send_text(message)
                await self._websocket.close(_GOING_AWAY, self._reason)
        finally:
            self._has_all.set()

    async def told(self) -> None:
        """Returns when a dismissed viewer was sent everything, or has left."""
        await self._has_all.wait()


class RunServer:
    """The web application of one run, and the loop that tells its viewers what is new."""

    def __init__(self, feed: Feed, guard: Guard) -> None:
        self._feed = feed
        self._guard = guard
        self._viewers: set[Viewer] = set()
        self._next_look = 0.0
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/api/run", self._run),
                Route("/api/metrics", self._metrics),
                Route("/api/control", self._control, methods=["POST"]),
                Route("/ws", self._not_a_websocket),
                WebSocketRoute("/ws", self._watch),
            ],
            exception_handlers={
                Rejected: _rejected,
                HTTPException: _no_such_route,
                **dict.fromkeys((CodedError, OSError), _failed),
            },
        )

    async def follow_run(self) -> None:
        """Tells the viewers what is new, until cancelled."""
        while True:
            await asyncio.sleep(max(0.05, self._next_look - time.monotonic()))
            if not self._viewers:
                await asyncio.sleep(_LOOK_SECONDS / 4)
                continue
            try:
                self._look_if_due()
            except (CodedError, OSError) as problem:
                self._dismiss_all(str(problem))

    async def close(self) -> None:
        """Viewers get the last state, then their connections close; slow ones get a moment for it."""
        if self._viewers:
            self._look()
        self._dismiss_all("the server has ended")
        if leaving := [asyncio.create_task(viewer.told()) for viewer in self._viewers]:
            await asyncio.wait(leaving, timeout=_FAREWELL_SECONDS)

    def _dismiss_all(self, reason: str) -> None:
        for viewer in self._viewers:
            viewer.dismiss(reason)

    def _look(self) -> None:
        began = time.process_time()
        message = self._feed.look()
        if message is not None:
            for viewer in self._viewers:
                viewer.tell(message)
        spent = time.process_time() - began
        self._next_look = time.monotonic() + max(_LOOK_SECONDS, spent / _SHARE_OF_A_CORE)

    def _look_if_due(self) -> None:
        if time.monotonic() >= self._next_look:
            self._look()

    async def _page(self, request: Request) -> Response:
        # The page itself holds nothing of the run.
        self._guard.check_origin(request)
        return HTMLResponse(live_page(request.headers["host"]))

    async def _run(self, request: Request) -> Response:
        self._guard.check_reading(request)
        self._look_if_due()
        return JSONResponse(self._feed.summary())

    async def _metrics(self, request: Request) -> Response:
        self._guard.check_reading(request)
        self._look_if_due()
        return JSONResponse(self._feed.points_after(_revision(request.query_params.get("after"))))

    async def _control(self, request: Request) -> Response:
        self._guard.check_control_access(request)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_BODY_BYTES:
                sentence = f"The request is larger than the limit of {_MAX_BODY_BYTES:,} bytes."
                raise Rejected(413, sentence, code="too_large")
        apply_commands(self._feed, bytes(body))
        self._look()
        return JSONResponse(self._feed.control())

    async def _not_a_websocket(self, request: Request) -> Response:
        self._guard.check_reading(request)
        raise Rejected(426, "Connect to this address with a WebSocket client.", code="upgrade_required")

    async def _watch(self, websocket: WebSocket) -> None:
        self._guard.check_reading(websocket)
        if len(self._viewers) >= MAX_CONNECTIONS:
            raise Rejected(
                503, f"Too many connections (limit {MAX_CONNECTIONS}).", code="too_many_connections"
            )
        self._look_if_due()
        await websocket.accept(PROTOCOL if PROTOCOL in offered_protocols(websocket) else None)
        viewer = Viewer(websocket, self._feed)
        self._viewers.add(viewer)
        try:
            await viewer.converse()
        finally:
            self._viewers.discard(viewer)


def _revision(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Rejected(
            422, "The parameter after must be the revision of an earlier response.", code="invalid_revision"
        )
    return int(text)


def _problem(status: int, sentence: str, *, code: str) -> Response:
    content = {"status": status, "code": code, "detail": sentence}
    return JSONResponse(content, status, media_type="application/problem+json")


async def _rejected(_: HTTPConnection, problem: Exception) -> Response:
    assert isinstance(problem, Rejected)
    return _problem(problem.status, str(problem), code=problem.code)


async def _failed(_: HTTPConnection, problem: Exception) -> Response:
    return _problem(500, str(problem), code=code_of(problem))


async def _no_such_route(request: HTTPConnection, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    if problem.status_code == 405:
        methods = (problem.headers or {}).get("Allow", "")
        return _problem(405, f"{request.url.path} takes {methods}.", code="method_not_allowed")
    sentence = "The addresses of this server are /, /ws, /api/run, /api/metrics and /api/control."
    return _problem(problem.status_code, sentence, code="not_found")
