"""HTTP clients that obey the policy: every connection, also after a redirect, goes to a checked address.

A proxy that the operator set (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) resolves names itself. Then only the scheme
and literal IP addresses are checked here; the rest is the proxy's task.
"""

import asyncio
import os
import socket
import ssl
import urllib.request
from collections.abc import Iterable
from functools import cache
from typing import Any

import httpcore2
import httpx2

from gpubloom.egress.policy import EgressRefused, Policy


def client(policy: Policy, *, only: str | None = None, **options: Any) -> httpx2.Client:
    """A synchronous client; redirects are not followed unless `options` say so.

    `only` is an address: then requests reach its host, and hosts that it redirects to.
    """
    found = transports(policy)
    if only is not None:
        reached = _Reached(policy, only)
        found["transport"] = _Only(reached, found["transport"])
        found["mounts"] = {pattern: _Only(reached, each) for pattern, each in found["mounts"].items()}
    return httpx2.Client(**found, **options)


def async_client(policy: Policy, **options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(**async_transports(policy), **options)


class AnswerRefused(Exception):
    """The response is too large, or compressed although no compression was requested."""


# With each request to a stranger whose answer is then read by `read_bounded`.
UNPACKED = {"Accept-Encoding": "identity"}


async def read_bounded(answer: httpx2.Response, most_bytes: int) -> bytes:
    """The body as it was sent. A packed one is refused: a few kilobytes could unpack to gigabytes at once."""
    _check_unpacked(answer)
    content = bytearray()
    async for piece in answer.aiter_raw():
        _add(content, piece, most_bytes)
    return bytes(content)


def read_bounded_in_thread(answer: httpx2.Response, most_bytes: int) -> bytes:
    """The same for a synchronous client."""
    _check_unpacked(answer)
    content = bytearray()
    for piece in answer.iter_raw():
        _add(content, piece, most_bytes)
    return bytes(content)


def _check_unpacked(answer: httpx2.Response) -> None:
    if answer.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
        raise AnswerRefused("The answer is compressed, although it was asked for without compression.")


def _add(content: bytearray, piece: bytes, most_bytes: int) -> None:
    content += piece
    if len(content) > most_bytes:
        raise AnswerRefused(f"The answer has more than {most_bytes:,} bytes.")


def tls_context() -> ssl.SSLContext:
    """What verifies servers, for every client of this process: reading the certificates of all authorities
    takes as long as twenty requests, and would keep the event loop from its other tasks."""
    return _tls_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _tls_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """httpx2 reads both variables itself; they are here to tell one context from another."""
    return httpx2.create_ssl_context()


def transports(policy: Policy) -> dict[str, Any]:
    """Options of httpx2.Client, for clients that another library creates."""
    direct = _Checked(policy, _Direct(policy))
    mounts: dict[str, Any] = {
        pattern: direct
        if proxy is None
        else _Checked(policy, httpx2.HTTPTransport(verify=tls_context(), proxy=proxy))
        for pattern, proxy in _proxies().items()
    }
    return {"transport": direct, "mounts": mounts, "trust_env": False}


def async_transports(policy: Policy) -> dict[str, Any]:
    """Options of httpx2.AsyncClient."""
    direct = _AsyncChecked(policy, _AsyncDirect(policy))
    mounts: dict[str, Any] = {
        pattern: direct
        if proxy is None
        else _AsyncChecked(policy, httpx2.AsyncHTTPTransport(verify=tls_context(), proxy=proxy))
        for pattern, proxy in _proxies().items()
    }
    return {"transport": direct, "mounts": mounts, "trust_env": False}


def _proxies() -> dict[str, str | None]:
    """Which proxy the environment names for which addresses; None: no proxy."""
    found = urllib.request.getproxies()
    proxies: dict[str, str | None] = {}
    for scheme in ("http", "https"):
        if proxy := found.get(scheme) or found.get("all"):
            proxies[f"{scheme}://"] = proxy if "://" in proxy else f"http://{proxy}"
    if not proxies:
        return {}
    for host in (part.strip().lstrip(".") for part in found.get("no", "").split(",")):
        if host == "*":
            return {}
        if host and "/" not in host:
            proxies[f"all://{host}"] = None
            proxies[f"all://*.{host}"] = None
    return proxies


class _Checked(httpx2.BaseTransport):
    def __init__(self, policy: Policy, inner: httpx2.BaseTransport) -> None:
        self._policy = policy
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._policy.check_address(str(request.url))
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class _Reached:
    """The hosts that requests may go to: the first, and those that one of them redirected to by https."""

    def __init__(self, policy: Policy, first: str) -> None:
        self._policy = policy
        self._hosts = {httpx2.URL(first).host}

    def check(self, url: httpx2.URL) -> None:
        if url.host not in self._hosts:
            raise EgressRefused(f"This address cannot be used: {url.host} was not named by a redirect.")

    def follow(self, response: httpx2.Response, url: httpx2.URL) -> None:
        if not response.has_redirect_location:
            return
        target = url.join(response.headers["Location"])
        if target.scheme == "https" or self._policy.is_listed(target.host):
            self._hosts.add(target.host)


class _Only(httpx2.BaseTransport):
    def __init__(self, reached: _Reached, inner: httpx2.BaseTransport) -> None:
        self._reached = reached
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._reached.check(request.url)
        response = self._inner.handle_request(request)
        self._reached.follow(response, request.url)
        return response

    def close(self) -> None:
        self._inner.close()


class _AsyncChecked(httpx2.AsyncBaseTransport):
    def __init__(self, policy: Policy, inner: httpx2.AsyncBaseTransport) -> None:
        self._policy = policy
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._policy.check_address(str(request.url))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Direct(httpx2.HTTPTransport):
    def __init__(self, policy: Policy) -> None:
        super().__init__(verify=tls_context())
        self._pool = httpcore2.ConnectionPool(ssl_context=tls_context(), network_backend=_Backend(policy))


class _AsyncDirect(httpx2.AsyncHTTPTransport):
    def __init__(self, policy: Policy) -> None:
        super().__init__(verify=tls_context())
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls_context(), network_backend=_AsyncBackend(policy)
        )


class _Backend(httpcore2.NetworkBackend):
    """Opens connections to resolved addresses. TLS still verifies the name: that happens a layer above."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        problem: Exception | None = None
        for address in _resolved(self._policy, host, port):
            try:
                return self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failure:
                problem = failure
        raise problem or httpcore2.ConnectError(f"{host} has no address")


class _AsyncBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore2
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        problem: Exception | None = None
        resolving = asyncio.to_thread(_resolved, self._policy, host, port)
        try:
            addresses = await asyncio.wait_for(resolving, timeout)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} could not be resolved in time") from None
        for address in addresses:
            try:
                return await self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failure:
                problem = failure
        raise problem or httpcore2.ConnectError(f"{host} has no address")

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


def _resolved(policy: Policy, host: str, port: int) -> list[str]:
    try:
        return policy.resolve(host, port)
    except (socket.gaierror, UnicodeError) as problem:
        raise httpcore2.ConnectError(f"{host} cannot be resolved: {problem}") from None
