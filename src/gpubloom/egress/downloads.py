"""The standard library's `urlopen` under the policy, for downloads that need no HTTP library."""

import http.client
import socket
import urllib.request
from typing import Any

from gpubloom.egress.policy import Policy


def opener(policy: Policy) -> urllib.request.OpenerDirector:
    """Opens http and https only. Redirects and every connection are checked."""
    built = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(policy),
        _Https(policy),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        built.add_handler(handler)
    return built


def _connecting(policy: Policy, kind: type[http.client.HTTPConnection]) -> Any:
    """A connection class whose sockets go to checked addresses; a proxy of the operator's is not checked."""
    proxies = Policy.of_operator(*urllib.request.getproxies().values()).hosts

    def connection(host: str, **options: Any) -> http.client.HTTPConnection:
        made = kind(host, **options)

        def create(address: tuple[str, int], *rest: Any) -> socket.socket:
            allowing = Policy(policy.hosts | proxies, policy.networks)
            return allowing.create_connection(address, *rest)

        made._create_connection = create  # type: ignore[attr-defined]
        return made

    return connection


class _Http(urllib.request.HTTPHandler):
    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def http_open(self, request: urllib.request.Request) -> Any:
        self._policy.check_address(request.full_url)
        return self.do_open(_connecting(self._policy, http.client.HTTPConnection), request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def https_open(self, request: urllib.request.Request) -> Any:
        self._policy.check_address(request.full_url)
        return self.do_open(_connecting(self._policy, http.client.HTTPSConnection), request)
