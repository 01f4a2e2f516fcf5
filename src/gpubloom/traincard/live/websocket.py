"""The WebSockets of viewers: as much of RFC 6455 as they need, and one sender for each viewer.

The protocol is the handshake, whole messages out and short ones in. A viewer that does not keep up is
skipped, and gets the whole run when it is back.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import struct
import time
from collections.abc import Mapping

from gpubloom.traincard.live import websocket
from gpubloom.traincard.live.feed import Feed
from gpubloom.traincard.live.http import HttpRequest, Rejected

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
GOING_AWAY = 1001
PROTOCOL = "bloom.run.v1"
# Fixed by the standard: what a server adds to the key to show that it understood.
_STANDARD = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_BYTES = 4096

# What may wait for one viewer before it is left behind.
_MOST_WAITING_BYTES = 256 * 1024
_PING_SECONDS = 30.0
# Two pings without an answer.
_GONE_SECONDS = 75.0


class NotWebSocket(Exception):
    """The other side does not keep to the protocol, or says more than a viewer has to say."""


def handshake(request: HttpRequest) -> bytes:
    """The answer that turns a request into a WebSocket."""
    headers = request.headers
    if headers.get("upgrade", "").lower() != "websocket" or headers.get("sec-websocket-version") != "13":
        raise Rejected(426, "This address speaks WebSocket, version 13.", code="upgrade_required")
    key = headers.get("sec-websocket-key", "")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key:
        raise Rejected(400, "Sec-WebSocket-Key is not 16 bytes in base64.", code="malformed_request")
    # Named by the standard; not a matter of secrecy.
    digest = hashlib.sha1((key + _STANDARD).encode(), usedforsecurity=False).digest()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
    ]
    if PROTOCOL in offered(headers):
        lines.append(f"Sec-WebSocket-Protocol: {PROTOCOL}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def offered(headers: Mapping[str, str]) -> list[str]:
    """The protocols that a viewer offers; a browser has no other place for a token."""
    return [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]


def frame(kind: int, payload: bytes) -> bytes:
    """One whole message."""
    size = len(payload)
    if size < 126:
        return struct.pack("!BB", 0x80 | kind, size) + payload
    if size < 1 << 16:
        return struct.pack("!BBH", 0x80 | kind, 126, size) + payload
    return struct.pack("!BBQ", 0x80 | kind, 127, size) + payload


def closing(code: int, reason: str = "") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason.encode()[:120])


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Kind and content of the next frame of a viewer."""
    first, second = await reader.readexactly(2)
    if first & 0x70 or not second & 0x80:
        raise NotWebSocket("a viewer's frames are masked and have no extensions")
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", await reader.readexactly(2))
    if size > _MOST_BYTES:
        raise NotWebSocket(f"a viewer's frame has at most {_MOST_BYTES:,} bytes")
    mask = await reader.readexactly(4)
    masked = await reader.readexactly(size)
    return first & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))


class Viewer:
    """One open WebSocket."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._transport = writer.transport
        self._is_behind = False
        self._heard_at = self._pinged_at = time.monotonic()

    def begin(self, feed: Feed) -> None:
        self._send(websocket.TEXT, feed.whole())

    def tell(self, message: bytes, feed: Feed) -> None:
        """Passes a framed message on, or the whole run to one that missed some. Never waits."""
        if self._transport.get_write_buffer_size() > _MOST_WAITING_BYTES:
            self._is_behind = True
        elif self._is_behind:
            self._is_behind = False
            self.begin(feed)
        else:
            self._writer.write(message)

    def keep_alive(self) -> None:
        """Asks for a sign now and then; lets go of one that gives none."""
        now = time.monotonic()
        if now - self._heard_at > _GONE_SECONDS:
            self._transport.abort()
        elif now - self._pinged_at > _PING_SECONDS:
            self._pinged_at = now
            self._send(websocket.PING, b"")

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Until the viewer leaves. What it says changes nothing."""
        with contextlib.suppress(asyncio.IncompleteReadError, websocket.NotWebSocket, ConnectionError):
            while True:
                kind, content = await websocket.read_frame(reader)
                self._heard_at = time.monotonic()
                if kind == websocket.CLOSE:
                    self._send(websocket.CLOSE, content[:2])
                    return
                if kind == websocket.PING:
                    self._send(websocket.PONG, content[:125])

    def dismiss(self, reason: str) -> None:
        self._writer.write(websocket.closing(websocket.GOING_AWAY, reason))
        self._writer.close()

    def _send(self, kind: int, content: bytes) -> None:
        self._writer.write(websocket.frame(kind, content))
