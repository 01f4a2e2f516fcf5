"""Guard: who may see a run at the dashboard, and who may control it.

Whoever is on this machine may see it. Controlling the run takes the token that was printed at its start; so
does seeing it, when the server listens on more than loopback. A page of another origin may do neither, and a
name that somebody's DNS points here (rebinding) is no name of ours.
"""

import ipaddress
import re
import secrets
import socket

from gpubloom.traincard.live.http import HttpRequest, Rejected
from gpubloom.traincard.live.websocket import offered

# The page's content policy repeats it, so nothing else may stand in it.
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
TOKEN_PREFIX = "token."  # noqa: S105 - what stands before a token


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Guard:
    """Decides by the request alone; raises Refused."""

    def __init__(self, token: str, listens_on: str) -> None:
        self._token = token
        self._only_here = is_loopback(listens_on)

    def check_origin(self, request: HttpRequest) -> None:
        """The address in the request is one of ours, and no page of another origin sent it."""
        host = request.headers.get("host", "")
        if _HOST.fullmatch(host) is None or not self._is_ours(_name_of(host)):
            raise Rejected(
                421,
                f"{host[:100] or 'A request without a host'} is not an address of this server.",
                code="host_not_allowed",
            )
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}".lower(), f"https://{host}".lower()}:
            raise Rejected(
                403, f"A page of {origin[:100]} may not talk to this server.", code="origin_not_allowed"
            )

    def check_reading(self, request: HttpRequest) -> None:
        if not self._only_here and not self._has_token(request):
            raise Rejected(
                401,
                "This server listens on the network: send the token that it printed at start.",
                code="invalid_api_token",
            )

    def check_control_access(self, request: HttpRequest) -> None:
        if not self._has_token(request):
            raise Rejected(
                401,
                "Changing the run takes the token that was printed when the server started.",
                code="invalid_api_token",
            )

    def _is_ours(self, name: str) -> bool:
        if is_loopback(name):
            return True
        if self._only_here:
            return False
        try:
            # A number is nobody's DNS name.
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() == socket.gethostname().lower()
        return True

    def _has_token(self, request: HttpRequest) -> bool:
        said = [request.headers.get("authorization", "").removeprefix("Bearer ").strip()]
        said += [
            name.removeprefix(TOKEN_PREFIX)
            for name in offered(request.headers)
            if name.startswith(TOKEN_PREFIX)
        ]
        return any(secrets.compare_digest(text.encode(), self._token.encode()) for text in said)


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
