"""As much of WebSocket (RFC 6455) as viewers need: the handshake, whole messages out, short ones in."""

import asyncio
import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping

from gpubloom.traincard.live.http import Rejected, Request

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
GOING_AWAY = 1001
PROTOCOL = "bloom.run.v1"
# Fixed by the standard: what a server adds to the key to show that it understood.
_STANDARD = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_BYTES = 4096


class NotWebSocket(Exception):
    """The other side does not keep to the protocol, or says more than a viewer has to say."""


def handshake(request: Request) -> bytes:
    """The answer that turns a request into a WebSocket."""
    headers = request.headers
    if headers.get("upgrade", "").lower() != "websocket" or headers.get("sec-websocket-version") != "13":
        raise Rejected(426, "This address speaks WebSocket, version 13.")
    key = headers.get("sec-websocket-key", "")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key:
        raise Rejected(400, "Sec-WebSocket-Key is not 16 bytes in base64.")
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
