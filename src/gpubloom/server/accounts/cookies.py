"""The session cookie: how it is named, set, read and cleared.

Over TLS its name begins with `__Host-`, which makes browsers refuse it from any other host or path.
"""

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpubloom.server.accounts.sessions import LONGEST_LIFE
from gpubloom.server.settings import Settings

_PENDING = "new_session_secret"


def cookie_name(settings: Settings) -> str:
    """The name of the session cookie."""
    return "__Host-bloom_session" if settings.secure else "bloom_session"


def read_session_cookie(request: Request) -> str | None:
    """The secret a browser presents."""
    return request.cookies.get(cookie_name(request.app.state.settings)) or None


def set_session_cookie(request: Request, secret: str) -> None:
    """Send a secret with whatever response this request gets; an empty one clears the cookie."""
    setattr(request.state, _PENDING, secret)


class SessionCookie:
    """ASGI middleware that writes the cookie; works for every response, errors and files included."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_cookie(message: Message) -> None:
            secret = scope.get("state", {}).get(_PENDING)
            if message["type"] == "http.response.start" and secret is not None:
                MutableHeaders(scope=message).append("Set-Cookie", self._header(secret))
            await send(message)

        await self.app(scope, receive, with_cookie)

    def _header(self, secret: str) -> str:
        carrier = Response()
        carrier.set_cookie(
            cookie_name(self.settings),
            secret,
            max_age=int(LONGEST_LIFE.total_seconds()) if secret else 0,
            path="/",
            secure=self.settings.secure,
            httponly=True,
            samesite="lax",
        )
        return carrier.headers["set-cookie"]
