"""Guard: who may see a run at the dashboard, and who may control it.

Everybody on this machine may see the run. Controlling the run needs the token that was printed at the start;
seeing it needs the token too when the server listens on more than loopback. A page of another origin may do
neither, and the server rejects host names that it does not know (DNS rebinding).
"""

import ipaddress
import re
import secrets
import socket

from starlette.requests import HTTPConnection

from gpubloom.errors import CodedError

# The page's content policy repeats the host, so nothing else may stand in it.
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
TOKEN_PREFIX = "token."  # noqa: S105 - what stands before a token


class Rejected(CodedError):
    """A request that is answered with an error."""

    def __init__(self, status: int, sentence: str, *, code: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def offered_protocols(request: HTTPConnection) -> list[str]:
    """The WebSocket subprotocols that a viewer offers; a browser can put a token nowhere else."""
    return [name.strip() for name in request.headers.get("sec-websocket-protocol", "").split(",")]


class Guard:
    """Decides by the request alone; raises Rejected."""

    def __init__(self, token: str, listens_on: str) -> None:
        self._token = token
        self._only_here = is_loopback(listens_on)

    def check_origin(self, request: HTTPConnection) -> None:
        """The request names this server as its host, and no page of another origin sent it."""
        host = request.headers.get("host", "")
        if _HOST.fullmatch(host) is None or not self._is_ours(_name_of(host)):
            raise Rejected(
                421,
                f"{host[:100]} is not an address of this server."
                if host
                else "The request has no Host header.",
                code="host_not_allowed",
            )
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}".lower(), f"https://{host}".lower()}:
            raise Rejected(
                403,
                f"A page of {origin[:100]} is not allowed to use this server.",
                code="origin_not_allowed",
            )

    def check_reading(self, request: HTTPConnection) -> None:
        self.check_origin(request)
        if not self._only_here and not self._has_token(request):
            raise Rejected(
                401,
                "This server listens on the network: send the token that was printed at its start.",
                code="invalid_api_token",
            )

    def check_control_access(self, request: HTTPConnection) -> None:
        self.check_origin(request)
        if not self._has_token(request):
            raise Rejected(
                401,
                "Changing the run requires the token that was printed when the server started.",
                code="invalid_api_token",
            )

    def _is_ours(self, name: str) -> bool:
        if is_loopback(name):
            return True
        if self._only_here:
            return False
        try:
            # An IP address cannot be a DNS name of somebody else.
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() == socket.gethostname().lower()
        return True

    def _has_token(self, request: HTTPConnection) -> bool:
        given = [request.headers.get("authorization", "").removeprefix("Bearer ").strip()]
        given += [
            name.removeprefix(TOKEN_PREFIX)
            for name in offered_protocols(request)
            if name.startswith(TOKEN_PREFIX)
        ]
        return any(secrets.compare_digest(text.encode(), self._token.encode()) for text in given)


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
