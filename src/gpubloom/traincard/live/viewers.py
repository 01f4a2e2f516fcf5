"""The open WebSockets. A viewer that does not keep up is skipped, and gets the whole run when it is back."""

import asyncio
import contextlib
import time

from gpubloom.traincard.live import websocket
from gpubloom.traincard.live.feed import Feed

# What may wait for one viewer before it is left behind.
_MOST_WAITING_BYTES = 256 * 1024
_PING_SECONDS = 30.0
# Two pings without an answer.
_GONE_SECONDS = 75.0


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
