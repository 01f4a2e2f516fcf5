"""HiddenPaths: no answer tells where on this machine the server keeps its files.

Sentences come from many places: libraries, jobs, the operating system. Each place that knows a path should
not name it; this middleware is for the one that does. A path below BLOOM_HOME is shown from there on
(`models/…`), and a path in the uploads folder as a person would type it. Downloads are not touched: they are
people's own files.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Tells admins where the folders are.
_ABOUT_THE_SERVER = "/api/server"
_WHOLE = ("application/json", "application/problem+json")
_EVENTS = "text/event-stream"


class HiddenPaths:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, home: Path, uploads: Path) -> None:
        self.app = app
        forms = {form for path in (home, home.resolve()) for form in _spellings(str(path))}
        self._path = re.compile(_pattern(forms, uploads.relative_to(home).as_posix()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == _ABOUT_THE_SERVER:
            await self.app(scope, receive, send)
            return
        kind = ""
        start: Message | None = None

        async def hiding(message: Message) -> None:
            nonlocal kind, start
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "").partition(";")[0]
                if kind in _WHOLE:
                    # Its length is known when the body is.
                    start = message
                    return
            elif message["type"] == "http.response.body" and (kind in _WHOLE or kind == _EVENTS):
                message["body"] = self.hide(message.get("body", b""))
                if start is not None:
                    headers = MutableHeaders(scope=start)
                    if not message.get("more_body", False) and "content-length" in headers:
                        headers["Content-Length"] = str(len(message["body"]))
                    held, start = start, None
                    await send(held)
            await send(message)

        await self.app(scope, receive, hiding)

    def hide(self, body: bytes) -> bytes:
        """The same without paths of this server."""
        return self._path.sub(lambda found: b"" if found["below"] else b"BLOOM_HOME", body)


def _pattern(forms: Iterable[bytes], inside: str) -> bytes:
    """One of these folders with what follows it, but not the end or the beginning of another name."""
    homes = b"|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return rb"(?<![\w./-])(?:%s)(?:(?P<below>/(?:%s/)?)|(?![\w-]|\.\w))" % (homes, re.escape(inside.encode()))


def _spellings(path: str) -> set[bytes]:
    """How a path stands in JSON, with other letters than ASCII or without."""
    return {json.dumps(path, ensure_ascii=escaped)[1:-1].encode() for escaped in (True, False)}
