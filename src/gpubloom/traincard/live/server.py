"""RunServer: serves one run as a page, a small JSON API, and a WebSocket that says what changes.

While nobody looks it does nothing. While somebody does, it spends at most a hundredth of one core on reading
the run, however long that is. Commands from the dashboard are checked and written to control.json.
"""

import asyncio
import contextlib
import json
import math
import socket
import time
from pathlib import Path
from typing import Any, NoReturn

from gpubloom.errors import InputError, code_of
from gpubloom.traincard.card.page import CardNotBuiltError, live_page
from gpubloom.traincard.control import ControlFile
from gpubloom.traincard.live import websocket
from gpubloom.traincard.live.access_control import Guard
from gpubloom.traincard.live.feed import Feed
from gpubloom.traincard.live.http import MOST_HEADER_BYTES, HttpRequest, Rejected, answer, read_request
from gpubloom.traincard.live.websocket import Viewer
from gpubloom.traincard.reader import NewerProtocolError

_FIELDS = ("want", "save", "set")
_MOST_SETTINGS = 20

_LOOK_SECONDS = 1.0
_SHARE_OF_A_CORE = 0.01
_MOST_CONNECTIONS = 500
_LAST_WORDS_SECONDS = 1.0
_METHODS = {"/": "GET", "/ws": "GET", "/api/run": "GET", "/api/metrics": "GET", "/api/control": "POST"}


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
        asked = json.loads(body, parse_constant=_no_number)
    except ValueError:
        raise Rejected(400, "The request is not JSON.", code="not_json") from None
    if not isinstance(asked, dict) or not asked or set(asked) - set(_FIELDS):
        raise Rejected(
            400, f"A command is an object with one or more of: {', '.join(_FIELDS)}.", code="invalid_control"
        )
    return asked


def _no_number(text: str) -> NoReturn:
    raise InputError("not_json", f"{text} is no number in JSON")


def _check(want: object, save: object, settings: object) -> None:
    if want not in (None, "run", "pause"):
        raise Rejected(422, "want is run or pause.", code="invalid_control")
    if not isinstance(save, bool):
        raise Rejected(422, "save is true or false.", code="invalid_control")
    if settings is None:
        return
    if not isinstance(settings, dict) or len(settings) > _MOST_SETTINGS:
        raise Rejected(422, f"set is an object of at most {_MOST_SETTINGS} settings.", code="invalid_control")
    for name, value in settings.items():
        is_plain = value is None or isinstance(value, str | bool | int | float)
        # 1e999 is valid JSON, and infinite.
        if not is_plain or (isinstance(value, float) and not math.isfinite(value)) or len(str(value)) > 200:
            raise Rejected(
                422,
                f"{name[:100]} is set to a number, a short text, true, false or null.",
                code="invalid_setting",
            )


def _check_resuming(feed: Feed) -> None:
    """A run that has ended goes on only when somebody is there to start it."""
    if not feed.resumes and not feed.control()["is_held"]:
        raise Rejected(
            409,
            f"The run's process has ended. Continue it with: bloom train --resume {feed.run_dir}",
            code="run_ended",
        )


class RunServer:
    """The server of one run."""

    def __init__(self, run_dir: Path, guard: Guard, *, resumes: bool) -> None:
        self._feed = Feed(run_dir, resumes=resumes)
        self._guard = guard
        self._viewers: set[Viewer] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._next_look = 0.0

    async def serve(self, listening: socket.socket, ended: asyncio.Event) -> None:
        """Serves until `ended`; viewers then get the last state before they are let go."""
        server = await asyncio.start_server(self._connected, sock=listening, limit=MOST_HEADER_BYTES)
        ticking = asyncio.create_task(self._tick())
        await ended.wait()
        ticking.cancel()
        server.close()
        if self._viewers:
            self._look()
        self._dismiss_all("the server has ended")
        if self._connections:
            await asyncio.wait(self._connections, timeout=_LAST_WORDS_SECONDS)
        for task in self._connections:
            task.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(max(0.05, self._next_look - time.monotonic()))
            if not self._viewers:
                await asyncio.sleep(_LOOK_SECONDS / 4)
                continue
            for viewer in self._viewers:
                viewer.keep_alive()
            try:
                self._look_if_due()
            except (NewerProtocolError, OSError) as problem:
                self._dismiss_all(str(problem))

    def _dismiss_all(self, reason: str) -> None:
        for viewer in self._viewers:
            viewer.dismiss(reason)

    def _look(self) -> None:
        began = time.process_time()
        message = self._feed.look()
        if message is not None:
            framed = websocket.frame(websocket.TEXT, message)
            for viewer in self._viewers:
                viewer.tell(framed, self._feed)
        spent = time.process_time() - began
        self._next_look = time.monotonic() + max(_LOOK_SECONDS, spent / _SHARE_OF_A_CORE)

    def _look_if_due(self) -> None:
        if time.monotonic() >= self._next_look:
            self._look()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) > _MOST_CONNECTIONS:
                raise Rejected(
                    503, f"More than {_MOST_CONNECTIONS} viewers are too many.", code="too_many_connections"
                )
            request = await read_request(reader)
            if request is None:
                return
            self._check(request)
            if request.path == "/ws":
                accepted = websocket.handshake(request)
                self._look_if_due()
                writer.write(accepted)
                await self._show(reader, writer)
                return
            response = self._respond(request)
        except Rejected as refusal:
            response = _problem(refusal.status, refusal.code, refusal.sentence)
        except (CardNotBuiltError, NewerProtocolError, OSError) as problem:
            response = _problem(500, code_of(problem), str(problem))
        writer.write(response)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await writer.drain()

    def _check(self, request: HttpRequest) -> None:
        self._guard.check_origin(request)
        method = _METHODS.get(request.path)
        if method is None:
            raise Rejected(404, f"There are {', '.join(_METHODS)}.", code="not_found")
        if request.method != method:
            raise Rejected(405, f"{request.path} takes {method}.", code="method_not_allowed")
        # The page itself says nothing of the run.
        if method == "POST":
            self._guard.check_control_access(request)
        elif request.path != "/":
            self._guard.check_reading(request)

    def _respond(self, request: HttpRequest) -> bytes:
        if request.path == "/":
            return answer(live_page(request.headers["host"]).encode(), "text/html; charset=utf-8")
        if request.path == "/api/control":
            apply_commands(self._feed, request.body)
            self._look()
            return _json(self._feed.control())
        self._look_if_due()
        if request.path == "/api/run":
            return _json(self._feed.summary())
        return _json(self._feed.points_after(_revision(request.query.get("after"))))

    async def _show(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        viewer = Viewer(writer)
        viewer.begin(self._feed)
        self._viewers.add(viewer)
        try:
            await viewer.listen(reader)
        finally:
            self._viewers.discard(viewer)


def _revision(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Rejected(422, "after is the revision of an earlier answer.", code="invalid_revision")
    return int(text)


def _json(content: Any) -> bytes:
    return answer(json.dumps(content, allow_nan=False, separators=(",", ":")).encode())


def _problem(status: int, code: str, sentence: str) -> bytes:
    body = json.dumps({"status": status, "code": code, "detail": sentence}).encode()
    return answer(body, "application/problem+json", status)
