"""What fakes of HTTP services share: a server in a thread, troubles on demand, machines that run.

Every exchange is checked against the service's contract; what does not fit it fails the test when the service
is closed.
"""

import itertools
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from tests.providers.services.machine import Machine, plain_machine

# `hang`: nothing is done, nobody answers. `late`: it is done, nobody answers. `cut`: it is done, and the
# connection breaks before the answer.
Trouble = Literal[
    "no_capacity",
    "quota",
    "bad_credentials",
    "no_access",
    "inactive_account",
    "rate_limited",
    "unavailable",
    "refused",
    "hang",
    "late",
    "cut",
]
_OF_LAUNCHES: set[Trouble] = {"no_capacity", "quota", "inactive_account", "refused", "late", "cut"}
RETRY_AFTER_SECONDS = 7


class Clock:
    """Time as the service counts it; moves on by itself, and by `advance`."""

    def __init__(self) -> None:
        self._added = 0.0

    def __call__(self) -> float:
        return time.time() + self._added

    def advance(self, seconds: float) -> None:
        self._added += seconds


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """`body`: what becomes JSON, or bytes that are sent as they are."""

    status: int
    body: Any
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    # The connection is kept after what was said, as by a stream of events.
    stays_open: bool = False

    @property
    def content(self) -> bytes:
        if self.status == HTTPStatus.NO_CONTENT:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Exchange:
    request: Request
    reply: Reply


@dataclass
class Rental:
    """One machine that was rented out. Times are seconds by the service's clock."""

    id: str
    name: str
    machine: Machine
    description: dict[str, Any]
    launched_at: float
    active_at: float
    ended_at: float | None = None
    taken_away: bool = False

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def log(self) -> str:
        """What the script and the job printed on the machine."""
        return "".join(path.read_text() for path in sorted(self.machine.folder.glob("bloom/*.log")))


class WebService:
    """`with` starts it and at the end takes all its machines away."""

    address_variable: str
    base_path = ""
    api_key: str

    def __init__(self, *, clock: Callable[[], float] | None = None, boot_seconds: float = 0.0) -> None:
        self.clock = clock or Clock()
        # How much its clock is ahead of everybody else's.
        self.clock_ahead_seconds = 0.0
        self.boot_seconds = boot_seconds
        self.instances: dict[str, Rental] = {}
        self.exchanges: list[Exchange] = []
        self.violations: list[str] = []
        self._troubles: list[tuple[Trouble | None, str | None]] = []
        self._revoked = False
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="rented-")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()
        for rental in self.instances.values():
            rental.machine.vanish()
        self._folder.cleanup()
        if kind is None:
            assert not self.violations, "\n".join(self.violations)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.base_path}"

    @property
    def environment(self) -> dict[str, str]:
        """Leads our client here."""
        return {self.address_variable: self.url}

    @property
    def credentials(self) -> dict[str, str]:
        return {"api_key": self.api_key}

    @property
    def running(self) -> list[Rental]:
        """What is billed."""
        return [rental for rental in self.instances.values() if not rental.ended]

    def fail_next(
        self, trouble: Trouble, *, times: int = 1, calls: str | None = None, after: int = 0
    ) -> None:
        """The next calls whose "METHOD path" contains `calls` fail, once so many `after` went well. None: any
        call, or any launch where only launches have such a trouble."""
        if calls is None and trouble in _OF_LAUNCHES:
            calls = self.launch_call
        with self._lock:
            self._troubles += [(None, calls)] * after + [(trouble, calls)] * times

    def heal(self) -> None:
        """No trouble is left."""
        with self._lock:
            self._troubles.clear()

    def revoke(self) -> None:
        """The key is good no more."""
        self._revoked = True

    def preempt(self, instance_id: str) -> None:
        """The service takes the machine away without a word."""
        with self._lock:
            rental = self.instances[instance_id]
            rental.taken_away = True
            self.end(rental)

    def end(self, rental: Rental) -> None:
        with self._lock:
            if rental.ended_at is None:
                rental.machine.vanish()
                rental.ended_at = self.clock()

    def billed_seconds(self, instance_id: str) -> float:
        rental = self.instances[instance_id]
        end = self.clock() if rental.ended_at is None else rental.ended_at
        return max(0.0, end - rental.active_at)

    def now(self) -> float:
        """As the service says it, which may be wrong."""
        return self.clock() + self.clock_ahead_seconds

    def calls(self, part: str) -> list[Exchange]:
        """Exchanges whose "METHOD path" contains this."""
        return [found for found in self.exchanges if part in f"{found.request.method} {found.request.path}"]

    # What the services differ in.

    launch_call: str

    def answer(self, request: Request) -> Reply:
        raise NotImplementedError

    def failure(self, trouble: Trouble, request: Request) -> Reply:
        raise NotImplementedError

    def check(self, exchange: Exchange) -> Iterable[str]:
        """What of it does not fit the contract, one sentence each."""
        raise NotImplementedError

    def rent(self, identifier: str, name: str, script: str, description: dict[str, Any]) -> Rental:
        """Makes a machine that runs the script as soon as it has booted."""
        machine = self.machine(Path(self._folder.name) / identifier, script)
        now = self.clock()
        rental = Rental(identifier, name, machine, description, now, now + self.boot_seconds)
        self.instances[identifier] = rental
        self._boot_what_is_due()
        return rental

    def machine(self, folder: Path, script: str) -> Machine:
        return plain_machine(folder, script, clock=self.clock)

    def identifier(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):04d}"

    def _boot_what_is_due(self) -> None:
        for rental in self.instances.values():
            due = not rental.ended and self.clock() >= rental.active_at
            if due and rental.machine.started_at is None:
                rental.machine.start()

    def wait_until_closed(self, seconds: float) -> None:
        self._closing.wait(seconds)

    # What the handler calls.

    def serve(self, request: Request) -> Reply | None:
        """None: the connection breaks."""
        if request.headers.get("user-agent", "").lower().startswith("python"):
            # As Cloudflare does before such services.
            return Reply(403, b"error code: 1010", content_type="text/plain")
        with self._lock:
            self._boot_what_is_due()
            trouble = self._trouble_for(request)
            if trouble is not None and trouble not in ("hang", "late", "cut"):
                reply: Reply | None = self.failure(trouble, request)
            elif self._revoked or request.headers.get("authorization") != f"Bearer {self.api_key}":
                reply = self.failure("bad_credentials", request)
            elif trouble == "hang":
                reply = None
            else:
                reply = self.answer(request)
            if reply is not None:
                exchange = Exchange(request, reply)
                self.exchanges.append(exchange)
                where = f"{request.method} {request.path} → {reply.status}"
                self.violations += [f"{where}: {violation}" for violation in self.check(exchange)]
        if trouble in ("hang", "late"):
            self._closing.wait(30)
        return None if trouble in ("hang", "late", "cut") else reply

    def _trouble_for(self, request: Request) -> Trouble | None:
        call = f"{request.method} {request.path}"
        for position, (_, calls) in enumerate(self._troubles):
            if calls is None or calls in call:
                return self._troubles.pop(position)[0]
        return None


def _handler_of(service: WebService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Tests are quiet."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(service.now())

        def serve(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            address = urlsplit(self.path)
            request = Request(
                self.command,
                address.path.removeprefix(service.base_path),
                dict(parse_qsl(address.query)),
                json.loads(content) if content else None,
                {name.lower(): value for name, value in self.headers.items()},
            )
            reply = service.serve(request)
            if reply is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(reply.status, HTTPStatus(reply.status).phrase)
            for name, value in (("Content-Type", reply.content_type), *reply.headers):
                self.send_header(name, value)
            if reply.stays_open:
                self.close_connection = True
            elif reply.status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)
            if reply.stays_open:
                self.wfile.flush()
                service.wait_until_closed(30)

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.serve)
    return Handler
