"""Refuses requests that no honest client sends, before anything else looks at them.

Host: a page of another name that resolves to this machine (DNS rebinding) sends its own name here.
Origin and Sec-Fetch-Site: a page of another site that posts here says so; browsers do not let it lie.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gpubloom.server.problems import Forbidden, MalformedRequest, Problem, problem_response

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestGuard:
    """ASGI middleware that checks Host, Origin and Sec-Fetch-Site."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            problem = self._objection(scope)
            if problem is not None:
                await problem_response(problem)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _objection(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if _host_name(host) not in self.hosts:
            return MalformedRequest(
                "This server does not answer to that host name. "
                "Its operator can allow it with BLOOM_ALLOWED_HOSTS.",
                code="unknown_host",
            )
        if scope["type"] == "http" and scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and not self._same_site(origin, host):
            return Forbidden("This request came from a page of another site.", code="cross_site")
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return Forbidden("This request came from a page of another site.", code="cross_site")
        return None

    def _same_site(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin.lower())
        except ValueError:
            return False
        return parts.netloc == host


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
