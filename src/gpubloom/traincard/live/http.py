"""As much of HTTP/1.1 as one page and a few addresses need: one request a connection, all of it bounded."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from gpubloom.errors import CodedError

MOST_HEADER_BYTES = 16 * 1024
_MOST_BODY_BYTES = 64 * 1024
_READ_TIMEOUT_SECONDS = 10.0
# Said twice, each of these could mean two things to two readers.
_ONCE = frozenset({"host", "origin", "authorization", "content-length", "sec-websocket-key"})
# Nobody else frames the page, keeps it, guesses its type or learns its address.
_ALWAYS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Rejected(CodedError):
    """A request that is not answered as asked; the sentence is for the person behind it."""

    def __init__(self, status: int, sentence: str, *, code: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status
        self.sentence = sentence


@dataclass(frozen=True)
class HttpRequest:
    """What somebody asks; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The one request of a connection; None when the other side went away or took too long to say it."""
    try:
        async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            request = _parse(head.decode("latin-1"))
            body = await reader.readexactly(_body_bytes(request))
    except asyncio.LimitOverrunError:
        raise Rejected(431, "The request's headers are too long.", code="too_large") from None
    except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
        return None
    return HttpRequest(request.method, request.path, request.query, request.headers, body)


def _parse(head: str) -> HttpRequest:
    first, *lines = head[:-4].split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in {"HTTP/1.1", "HTTP/1.0"} or not words[1].startswith("/"):
        raise Rejected(400, "This is no HTTP request.", code="malformed_request")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name in headers and name in _ONCE):
            raise Rejected(400, "A header of the request cannot be read.", code="malformed_request")
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    address = urlsplit(words[1])
    return HttpRequest(words[0], address.path, dict(parse_qsl(address.query)), headers)


def _body_bytes(request: HttpRequest) -> int:
    if "transfer-encoding" in request.headers:
        raise Rejected(411, "Say how long the request is: Content-Length.", code="length_required")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Rejected(400, "Content-Length is no number.", code="malformed_request")
    if len(length) > 9 or int(length) > _MOST_BODY_BYTES:
        raise Rejected(413, f"A request may have {_MOST_BODY_BYTES:,} bytes.", code="too_large")
    return int(length)


def answer(
    body: bytes, kind: str = "application/json", status: int = 200, more: Mapping[str, str] | None = None
) -> bytes:
    """A whole response."""
    headers = {**_ALWAYS, "Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
