"""The HTTP server of a model: OpenAI's routes on a loopback port, behind a token.

Starlette and uvicorn speak HTTP. Tokens are computed in threads, one at a time per answer, so the event loop
stays free and notices a client that leaves; its answer then ends with the present token.
"""

import asyncio
import hmac
import json
import os
import socket
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gpubloom.engine.serving.openai_protocol import Rejected, Shape, usage
from gpubloom.engine.serving.service import ParsedRequest, Service
from gpubloom.plan.tasks import SOCKET_FILE
from gpubloom.traincard.untrusted_json import UntrustedJsonError, parse_untrusted

_MAX_BODY_BYTES = 8 << 20
_KEEP_ALIVE_SECONDS = 60
# A client that reads nothing for this long is disconnected; otherwise the process would never be idle.
_SEND_SECONDS = 60.0
_CLOSE_SECONDS = 5


@contextmanager
def serving(service: Service, token: str, socket_folder: Path | None = None) -> Iterator[int]:
    """Serve on a free port of the loopback address and yield the port. At the end, all answers end.

    `socket_folder`: a folder for a socket file, through which those reach it who do not share its network.
    """
    listening = [socket.create_server(("127.0.0.1", 0))]
    if socket_folder is not None:
        listening.append(_socket_file(socket_folder))
    config = uvicorn.Config(
        _app(service, token),
        lifespan="off",
        ws="none",
        # What was asked and answered is private, so there is no access log.
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=(listening,), name="http server", daemon=True)
    thread.start()
    try:
        yield int(listening[0].getsockname()[1])
    finally:
        server.should_exit = True
        service.close(_CLOSE_SECONDS)
        thread.join(2 * _CLOSE_SECONDS)


def _socket_file(folder: Path) -> socket.socket:
    (folder / SOCKET_FILE).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    # The name of a socket is short, that of a folder may be long.
    at = os.open(folder, os.O_PATH)
    try:
        listening.bind(f"/proc/self/fd/{at}/{SOCKET_FILE}")
    finally:
        os.close(at)
    listening.listen()
    return listening


def _app(service: Service, token: str) -> Starlette:
    registry, formatter = service.registry, service.formatter

    async def health(_: Request) -> Response:
        facts = {"status": "ok", **registry.facts(), "context_length": registry.context_length}
        facts |= {"chat_template": formatter.template is not None, "chat_note": formatter.note}
        return JSONResponse(facts)

    async def models(_: Request) -> Response:
        found = [
            {"id": name, "object": "model", "created": 0, "owned_by": "gpubloom"} for name in registry.names
        ]
        return JSONResponse({"object": "list", "data": found})

    async def chat(request: Request) -> Response:
        return await _complete(service, request, chat=True)

    async def complete(request: Request) -> Response:
        return await _complete(service, request, chat=False)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", complete, methods=["POST"]),
        ],
        middleware=[
            Middleware(AuthenticationMiddleware, backend=_TokenCheck(token), on_error=_not_authenticated)
        ],
        exception_handlers={
            Rejected: _rejected,
            HTTPException: _no_such_route,
            ClientDisconnect: _client_left,
        },
    )


class _TokenCheck(AuthenticationBackend):
    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def authenticate(self, conn: HTTPConnection) -> None:
        if not hmac.compare_digest(conn.headers.get("authorization", "").encode(), self._expected):
            raise AuthenticationError


def _not_authenticated(*_: object) -> Response:
    sentence = (
        "The token is missing or wrong: send the header Authorization: Bearer TOKEN with the token "
        "of serve.json."
    )
    return _error(Rejected(sentence, status=401, code="invalid_api_key"))


async def _no_such_route(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    sentence = (
        f"{request.method} {request.url.path} does not exist. Available: GET /health, GET /v1/models, "
        "POST /v1/chat/completions and POST /v1/completions."
    )
    code = "method_not_allowed" if problem.status_code == 405 else "not_found"
    return _error(Rejected(sentence, status=problem.status_code, code=code))


async def _rejected(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Rejected)
    return _error(problem)


async def _client_left(*_: object) -> Response:
    return Response(status_code=499)


def _error(problem: Rejected) -> Response:
    return JSONResponse(problem.body, problem.status)


def _rejection(problem: Exception) -> Rejected:
    """What the client is told of an exception that is being handled."""
    if isinstance(problem, Rejected):
        return problem
    if isinstance(problem, torch.OutOfMemoryError):
        sentence = (
            "The device ran out of memory during the answer: use a shorter prompt or a lower max_tokens, "
            "or stop other programs on the device."
        )
        return Rejected(sentence, status=503, code="not_enough_memory", kind="server_error")
    traceback.print_exc()
    return Rejected(f"The model failed: {problem}", status=500, code="failed", kind="server_error")


async def _complete(service: Service, request: Request, *, chat: bool) -> Response:
    body = await _json_body(request)
    watch = asyncio.create_task(_disconnected(request))
    with ExitStack() as stack:
        stack.callback(watch.cancel)
        opening = service.asked(chat=chat, body=body, gone=watch.done)
        try:
            asked = await run_in_threadpool(stack.enter_context, opening)
            pieces = iterate_in_threadpool(asked.answer)
            # The status is certain only when there is a first piece.
            first = await anext(pieces, None)
            shape = Shape(chat=asked.is_chat, model=asked.model)
            if asked.request.stream:
                return _Stream(_events(service, asked, shape, first, pieces), stack.pop_all())
            text = "".join([first or "", *[piece async for piece in pieces]])
            _check_not_unloading(service, asked)
        except Exception as problem:  # noqa: BLE001 - the client must hear of every failure
            raise _rejection(problem) from None
        used = usage(asked.answer.prompt_tokens, asked.answer.tokens)
        return JSONResponse(shape.whole(text, asked.answer.finish_reason, used))


async def _json_body(request: Request) -> Any:
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > _MAX_BODY_BYTES:
            sentence = f"The request body is larger than the limit of {_MAX_BODY_BYTES:,} bytes."
            raise Rejected(sentence, status=413, code="too_large")
    try:
        return parse_untrusted(content, most_bytes=_MAX_BODY_BYTES)
    except UntrustedJsonError as problem:
        raise Rejected(f"The body is not JSON: {problem}.", code="malformed_json") from None


async def _disconnected(request: Request) -> None:
    """Returns when the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_not_unloading(service: Service, asked: ParsedRequest) -> None:
    # An answer also ends as "gone" when the client has left; then nobody receives the response.
    if asked.answer.finish_reason == "gone" and service.is_closing:
        sentence = "The model is being unloaded; start it again to continue."
        raise Rejected(sentence, status=503, code="unloading", kind="server_error")


async def _events(
    service: Service, asked: ParsedRequest, shape: Shape, first: str | None, rest: AsyncIterator[str]
) -> AsyncIterator[bytes]:
    answer, options = asked.answer, asked.request.stream_options
    try:
        if (begin := shape.begin()) is not None:
            yield _event(begin)
        if first is not None:
            yield _event(shape.piece(first))
        async for piece in rest:
            yield _event(shape.piece(piece))
        _check_not_unloading(service, asked)
    except Exception as problem:  # noqa: BLE001 - the client must hear of every failure
        yield _event(_rejection(problem).body)
        return
    yield _event(shape.end(answer.finish_reason))
    if options is not None and options.include_usage:
        yield _event(shape.used(usage(answer.prompt_tokens, answer.tokens)))
    yield b"data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> bytes:
    # Escaped: many readers take characters such as U+2028 for the end of a line.
    return f"data: {json.dumps(content)}\n\n".encode()


class _Stream(StreamingResponse):
    """Server-sent events; `answering` is closed at the end, however the response ends."""

    def __init__(self, events: AsyncIterator[bytes], answering: ExitStack) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store"}, media_type="text/event-stream")
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(_SEND_SECONDS):
                await send(message)

        with self._answering:
            await super().__call__(scope, receive, send_in_time)
