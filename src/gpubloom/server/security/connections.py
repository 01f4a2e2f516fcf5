"""Connections of clients that take without giving: slow headers, slow bodies, unread answers, and too many.

uvicorn limits only how long a connection may idle between two requests. `GuardedProtocol` adds a clock for
whatever the client has to do next. A header must be complete in time. A body, and the reading of an answer,
may take as long as they like while they progress: what counts is the rate, never the length. `Connections`
limits how many connections there are, of one network and of all.
"""

import asyncio
import fcntl
import termios
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gpubloom.server.problems import Problem, TooManyRequests, problem_response
from gpubloom.server.security.rates import network_of
from gpubloom.server.settings import Settings

# Bytes per second, over a whole time-out. Slower than any network that a page would load over.
SLOWEST_RATE = 1024
# An answer may stand still longer than a request: browsers let people pause a download.
_ANSWER_TIMES = 4
# How long a refused client may take to read why, and how many may at once.
_LINGER_SECONDS = 1.0
_MOST_LINGERING = 64
_RETRY_SECONDS = 5


class RequestTimedOut(Problem):
    status, code = 408, "request_timeout"


class ServerFull(Problem):
    status, code = 503, "too_many_connections"


class Connections:
    """All connections of one server process, by the network that they come from."""

    def __init__(self, settings: Settings) -> None:
        self.header_seconds = settings.header_timeout_seconds
        self.body_seconds = settings.body_timeout_seconds
        self.lingering = 0
        self._most = settings.max_connections
        self._most_of_one = settings.max_connections_per_address
        self._proxies = _networks(settings.trusted_proxies)
        self._open: Counter[str] = Counter()

    def admit(self, network: str) -> Problem | None:
        """Count one more of a network; the problem why it cannot be served, if there is one."""
        if self._open.total() >= self._most:
            return ServerFull(
                f"The server already has {self._most} open connections, which is its limit. Try again in a "
                "moment. The operator can raise BLOOM_MAX_CONNECTIONS.",
                headers={"Retry-After": str(_RETRY_SECONDS)},
            )
        if self._open[network] >= self._most_of_one and not self._is_proxy(network):
            return TooManyRequests(
                f"Your network already has {self._most_of_one} open connections, which is the limit. Close "
                "some pages. The operator can raise BLOOM_MAX_CONNECTIONS_PER_ADDRESS.",
                code="too_many_connections",
                retry_after=_RETRY_SECONDS,
            )
        self._open[network] += 1
        return None

    def leave(self, network: str) -> None:
        """A connection of this network is gone."""
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def _is_proxy(self, network: str) -> bool:
        # Everybody comes through it; `BLOOM_MAX_CONNECTIONS` still counts.
        try:
            address = ip_address(network.partition("/")[0])
        except ValueError:
            return False
        return any(address in proxies for proxies in self._proxies)


def _networks(proxies: str) -> list[IPv4Network | IPv6Network]:
    if proxies.strip() == "*":
        return [ip_network("0.0.0.0/0"), ip_network("::/0")]
    found: list[IPv4Network | IPv6Network] = []
    for each in proxies.split(","):
        with suppress(ValueError):
            network = ip_network(each.strip(), strict=False)
            # Clients are counted by /64, so the proxy is looked up by it.
            wide = isinstance(network, IPv6Network) and network.prefixlen > 64
            found.append(network.supernet(new_prefix=64) if wide else network)
    return found


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with a clock for what the client has to do next."""

    def __init__(self, *arguments: Any, guard: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._guard = guard
        # None until it is admitted.
        self._network: str | None = None
        self._refused = False
        # What the client is expected to send, and the bytes of it that came since `_since`.
        self._expected: Literal["header", "body"] | None = None
        self._came = 0
        self._since = 0.0
        self._sending_clock: asyncio.TimerHandle | None = None
        self._unread = 0
        self._reading_clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        network = network_of(self.client[0]) if self.client else ""
        refusal = self._guard.admit(network)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._network = network
        self._expect("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        self._stop_reading_clock()
        if self._network is not None:
            self._guard.leave(self._network)
            self._network = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._came += len(data)
        super().data_received(data)
        # A header that has begun, and also the silence after a body that nobody wanted to read.
        self._follow("header")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Without a next request yet, the connection idles, which has a clock of its own.
        self._follow("header" if self.conn.trailing_data[0] else None)

    def _follow(self, when_idle: Literal["header"] | None) -> None:
        state = self.conn.their_state
        expected = when_idle if state is h11.IDLE else "body" if state is h11.SEND_BODY else None
        if expected != self._expected and not self._refused:
            self._expect(expected)

    def _expect(self, what: Literal["header", "body"] | None) -> None:
        """Start the clock for what must come next."""
        if self._sending_clock is not None:
            self._sending_clock.cancel()
            self._sending_clock = None
        self._expected = what
        self._came, self._since = 0, self.loop.time()
        if what == "header":
            self._sending_clock = self.loop.call_later(self._guard.header_seconds, self._header_is_late)
        elif what == "body":
            self._sending_clock = self.loop.call_later(self._guard.body_seconds / 4, self._check_body)

    def _header_is_late(self) -> None:
        if not self._came:
            # A connection that a browser opened in advance.
            self.transport.close()
            return
        self._refuse(
            RequestTimedOut(
                f"The header of the request did not arrive within {self._guard.header_seconds:g} seconds. "
                "Send it again."
            )
        )

    def _check_body(self) -> None:
        seconds = self._guard.body_seconds
        # While the server does not read, or has not asked for the body yet, nobody can send.
        is_our_turn = self.flow.read_paused or self.conn.they_are_waiting_for_100_continue
        if is_our_turn or self._came >= SLOWEST_RATE * seconds:
            self._came, self._since = 0, self.loop.time()
        elif self.loop.time() - self._since >= seconds:
            self._refuse(
                RequestTimedOut(
                    f"Less than {SLOWEST_RATE * seconds:,.0f} bytes of the request body arrived within "
                    f"{seconds:g} seconds. Send the request again, or continue the upload."
                )
            )
            return
        self._sending_clock = self.loop.call_later(seconds / 4, self._check_body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread_bytes()
        self._reading_clock = self.loop.call_later(
            _ANSWER_TIMES * self._guard.body_seconds, self._check_reading
        )

    def resume_writing(self) -> None:
        self._stop_reading_clock()
        super().resume_writing()

    def _check_reading(self) -> None:
        seconds = _ANSWER_TIMES * self._guard.body_seconds
        unread = self._unread_bytes()
        if self._unread - unread < SLOWEST_RATE * seconds:
            # What is left would never be read: nothing is flushed.
            self.transport.abort()
            return
        self._unread = unread
        self._reading_clock = self.loop.call_later(seconds, self._check_reading)

    def _stop_reading_clock(self) -> None:
        if self._reading_clock is not None:
            self._reading_clock.cancel()
            self._reading_clock = None

    def _unread_bytes(self) -> int:
        """What the client has not confirmed yet: here, and in the kernel, which takes megabytes at once."""
        queued = bytearray(4)
        with suppress(OSError):
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + int.from_bytes(queued, "little")

    def _refuse(self, problem: Problem) -> None:
        """Say why and close. The client gets a moment to read it: closing at once would reset the answer."""
        self._refused = True
        self._expect(None)
        self._unset_keepalive_if_required()
        cycle: RequestResponseCycle | None = self.cycle
        # Of an earlier request, all is said; the answer to this one cannot be taken back.
        was_answered = cycle is not None and cycle.response_started and self.conn.their_state is not h11.IDLE
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        if was_answered or self._guard.lingering >= _MOST_LINGERING:
            self.transport.abort()
            return
        self.transport.write(_plain_response(problem))
        self.transport.write_eof()
        # It reads what the client still sends, and throws it away.
        self.flow.resume_reading()
        self._guard.lingering += 1
        self.loop.call_later(_LINGER_SECONDS, self._stop_lingering)

    def _stop_lingering(self) -> None:
        self._guard.lingering -= 1
        self.transport.abort()


def _plain_response(problem: Problem) -> bytes:
    """The answer as it goes over the wire: there may be no request yet that an app could answer."""
    response = problem_response(problem)
    headers = [*response.raw_headers, (b"connection", b"close"), (b"cache-control", b"no-store")]
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
