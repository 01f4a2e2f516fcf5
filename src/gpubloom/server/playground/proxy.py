"""Passes a request on to the process that holds a model, and its answer back, byte by byte as it comes.

When the client leaves, so does the connection to the process, and the process stops writing. A client that
reads slowly slows the process down: nothing is gathered in between.
"""

import asyncio
import contextlib
import json
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gpubloom.egress.clients import AnswerRefused, read_bounded, tls_context
from gpubloom.errors import is_code
from gpubloom.plan.tasks import SOCKET_FILE
from gpubloom.server.playground.endpoint import Endpoint, note_use
from gpubloom.server.problems import (
    InvalidInput,
    MalformedRequest,
    NotFound,
    Problem,
    TooLarge,
    TooManyRequests,
)
from gpubloom.traincard.untrusted_json import parse_untrusted

# Reading a long prompt on a CPU takes its time; between two tokens it never takes that long.
_TIMEOUT = httpx2.Timeout(connect=5, read=600, write=30, pool=30)
_LOOK_SECONDS = 0.25
_USED_EVERY_SECONDS = 1.0
_LONGEST_REFUSAL = 64 * 1024
_EVENTS = "text/event-stream"
_SOCKET_FILE = "socket_file"


class NotReady(Problem):
    """It will be, soon: the client may try again."""

    status, code = 503, "not_ready"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "5"})


_REFUSALS: dict[int, type[Problem]] = {400: MalformedRequest, 404: NotFound, 413: TooLarge, 422: InvalidInput}


def new_client() -> httpx2.AsyncClient:
    """A server's client. It reaches this machine only, whatever the environment says about proxies."""
    return httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False, transport=_ThisMachine())


class _ThisMachine(httpx2.AsyncBaseTransport):
    """Goes through the socket file of a process. Such a process has a network of its own, and a port that it
    names could be any service of this machine."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        opened = _open_socket_file(request.extensions[_SOCKET_FILE])
        # One connection for one answer: what is behind a name may change.
        transport = httpx2.AsyncHTTPTransport(
            verify=tls_context(), trust_env=False, uds=f"/proc/self/fd/{opened}"
        )
        try:
            answer = await transport.handle_async_request(request)
        except BaseException:
            await transport.aclose()
            raise
        finally:
            # Connected, or never to be.
            os.close(opened)
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        answer.stream = _LastStream(answer.stream, transport)
        return answer


class _LastStream(httpx2.AsyncByteStream):
    """The only answer of a transport, which is closed with it."""

    def __init__(self, stream: httpx2.AsyncByteStream, transport: httpx2.AsyncHTTPTransport) -> None:
        self._stream = stream
        self._transport = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
        await self._transport.aclose()


def _open_socket_file(path: Path) -> int:
    """The socket itself: a link could lead to a service of another process."""
    try:
        opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        raise httpx2.ConnectError(f"There is no socket: {problem.strerror}") from problem
    if not stat.S_ISSOCK(os.fstat(opened).st_mode):
        os.close(opened)
        raise httpx2.ConnectError("There is another file in place of the socket")
    return opened


async def forward(
    request: Request,
    client: httpx2.AsyncClient,
    endpoint: Endpoint,
    path: str,
    body: dict[str, Any],
    run_dir: Path,
) -> Response:
    """The process's answer as it comes; its refusal as a problem with its own sentence."""
    note_use(run_dir)
    asking = client.build_request(
        "POST",
        f"http://localhost{path}",
        json=body,
        headers={"Authorization": f"Bearer {endpoint.token}", "Accept-Encoding": "identity"},
        extensions={_SOCKET_FILE: run_dir / SOCKET_FILE},
    )
    answer = await _unless_client_leaves(request, client, asking)
    if answer is None:
        # Nobody reads it any more.
        return Response(status_code=499)
    if answer.status_code >= 400:
        raise await _refusal(answer)
    return _Relay(answer, run_dir)


async def complete(
    client: httpx2.AsyncClient, endpoint: Endpoint, body: dict[str, Any], run_dir: Path, *, most_bytes: int
) -> bytes:
    """A whole chat completion, for callers that are no request. Raises as `forward` does."""
    note_use(run_dir)
    asking = client.build_request(
        "POST",
        "http://localhost/v1/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {endpoint.token}", "Accept-Encoding": "identity"},
        extensions={_SOCKET_FILE: run_dir / SOCKET_FILE},
    )
    try:
        answer = await client.send(asking, stream=True)
        try:
            if answer.status_code >= 400:
                raise await _refusal(answer)
            content = await read_bounded(answer, most_bytes)
        except AnswerRefused as refused:
            raise TooLarge("The answer of the model is too long.") from refused
        finally:
            await answer.aclose()
    except httpx2.HTTPError as problem:
        raise NotReady(f"The model process does not answer ({type(problem).__name__}).") from problem
    note_use(run_dir)
    return content


async def _unless_client_leaves(
    request: Request, client: httpx2.AsyncClient, asking: httpx2.Request
) -> httpx2.Response | None:
    """An answer that is not streamed arrives all at once; until then the client may disconnect."""
    sending = asyncio.ensure_future(client.send(asking, stream=True))
    try:
        while not (await asyncio.wait({sending}, timeout=_LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                return None
        return sending.result()
    except httpx2.HTTPError as problem:
        raise NotReady(
            f"The model process does not answer ({type(problem).__name__}). It may have just ended. "
            "Try again in a moment."
        ) from problem
    finally:
        if not sending.done():
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, httpx2.HTTPError):
                await sending


async def _refusal(answer: httpx2.Response) -> Problem:
    try:
        content = await read_bounded(answer, _LONGEST_REFUSAL)
    except (httpx2.HTTPError, AnswerRefused):
        content = b""
    finally:
        await answer.aclose()
    try:
        error = parse_untrusted(content, most_bytes=_LONGEST_REFUSAL)["error"]
        sentence, code = str(error["message"])[:2_000], error.get("code")
    except (ValueError, KeyError, TypeError):
        sentence = f"The model process answered with status {answer.status_code} and gave no reason."
        code = None
    if answer.status_code == 429:
        return TooManyRequests(sentence, retry_after=1)
    kind = _REFUSALS.get(answer.status_code)
    return NotReady(sentence) if kind is None else kind(sentence, code=code if is_code(code) else None)


class _Relay(StreamingResponse):
    """Sends what arrives. However it ends, the connection to the process is closed."""

    def __init__(self, answer: httpx2.Response, run_dir: Path) -> None:
        self._answer = answer
        self._run_dir = run_dir
        kind = answer.headers.get("content-type", "application/json")
        self._is_events = kind.startswith(_EVENTS)
        super().__init__(
            self._pieces(),
            status_code=answer.status_code,
            media_type=kind,
            # Proxies in front must not gather what is meant to be read as it is written.
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def _pieces(self) -> AsyncIterator[bytes]:
        noted = time.monotonic()
        try:
            async for piece in self._answer.aiter_raw():
                if time.monotonic() - noted > _USED_EVERY_SECONDS:
                    noted = time.monotonic()
                    note_use(self._run_dir)
                yield piece
        except httpx2.HTTPError:
            # The headers are out: only the body can still say it.
            if not self._is_events:
                raise
            sentence = "The model was unloaded before the answer was complete."
            broken = {
                "error": {"message": sentence, "type": "server_error", "param": None, "code": "cut_off"}
            }
            yield f"data: {json.dumps(broken)}\n\n".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._answer.aclose()
