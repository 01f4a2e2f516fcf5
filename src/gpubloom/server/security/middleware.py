"""Middleware of every request: the limit of its body, the checks of where it comes from, security headers.

`BodyLimit` refuses bodies that are larger than any honest request without reading them to their end; some
addresses take more (`larger`), and uploads are counted by their own routes. `RequestGuard` checks Host (a
page of another name that resolves to this machine, DNS rebinding, sends its own name here), Origin and
Sec-Fetch-Site (a page of another site that posts here says so; browsers do not let it lie).
`SecurityHeaders` tells browsers to trust this origin with nothing more than it needs.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpubloom.server.problems import Forbidden, MalformedRequest, Problem, TooLarge, problem_response

LARGEST_BODY = 1024 * 1024

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Inline styles are needed by positioned menus and dialogs; scripts come from files only.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class BodyLimit:
    """ASGI middleware; counts what arrives, whatever Content-Length says."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        largest: int = LARGEST_BODY,
        larger: Mapping[str, int] | None = None,
        unlimited: Mapping[str, re.Pattern[str]] | None = None,
    ) -> None:
        self.app = app
        self.largest = largest
        self.larger = dict(larger or {})
        # By method: whose routes count for themselves.
        self.unlimited = dict(unlimited or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_upload(scope):
            await self.app(scope, receive, send)
            return
        largest = self.larger.get(scope["path"], self.largest)
        refusal = problem_response(
            TooLarge(f"The request body is larger than {largest // 1024} KiB. Send a smaller request.")
        )
        declared = Headers(scope=scope).get("content-length", "0")
        # Longer numbers are too large whatever they say, and Python refuses to read the longest.
        if not declared.isdecimal() or len(declared) > 15 or int(declared) > largest:
            await refusal(scope, receive, send)
            return
        received = 0
        too_large = False
        answering = False

        async def counted() -> Message:
            nonlocal received, too_large
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > largest:
                    # The app sees a client that left; the real one gets the refusal.
                    too_large = True
                    return {"type": "http.disconnect"}
            return message

        async def watched(message: Message) -> None:
            nonlocal answering
            if too_large and not answering:
                return
            answering = True
            await send(message)

        try:
            await self.app(scope, counted, watched)
        finally:
            if too_large and not answering:
                await refusal(scope, receive, send)

    def _is_upload(self, scope: Scope) -> bool:
        pattern = self.unlimited.get(scope["method"])
        return pattern is not None and pattern.fullmatch(scope["path"]) is not None


class RequestGuard:
    """ASGI middleware that checks Host, Origin and Sec-Fetch-Site."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: frozenset[str],
        advice: str = "The operator can allow it with BLOOM_ALLOWED_HOSTS.",
    ) -> None:
        self.app = app
        self.hosts = hosts
        self.advice = advice

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
                f"This server does not accept this host name. {self.advice}", code="unknown_host"
            )
        if scope["type"] == "http" and scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is not None and not self._same_site(origin, host):
            return Forbidden(
                "This request was rejected because it came from a page of another website.", code="cross_site"
            )
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return Forbidden(
                "This request was rejected because it came from a page of another website.", code="cross_site"
            )
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


class SecurityHeaders:
    """ASGI middleware; answers of the API are never cached unless they say so themselves.

    They name the build of the web app that is served: a page of an earlier one then asks to be reloaded.
    """

    def __init__(self, app: ASGIApp, *, secure: bool, app_build: str | None = None) -> None:
        self.app = app
        self.headers = dict(_HEADERS)
        if secure:
            self.headers["Strict-Transport-Security"] = "max-age=31536000; includeSubDomains"
        self.app_build = app_build

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("Cache-Control", "no-store")
                    if self.app_build is not None:
                        headers["X-App-Build"] = self.app_build
            await send(message)

        await self.app(scope, receive, with_headers)
