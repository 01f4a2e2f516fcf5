"""Clients that send or read by drops, and clients with too many connections, against a real server."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx2
import pytest

from gpubloom.server.security.connections import Connections
from gpubloom.server.settings import Settings
from tests.live_server import LiveServer, live_server
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job

HEADER_SECONDS, BODY_SECONDS = 1.0, 1.0
# Long after every time-out of the server.
GIVE_UP_SECONDS = 25.0
PER_ADDRESS = 8


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("connections") / "home"
    limits = {
        "BLOOM_HEADER_TIMEOUT_SECONDS": str(HEADER_SECONDS),
        "BLOOM_BODY_TIMEOUT_SECONDS": str(BODY_SECONDS),
        "BLOOM_MAX_CONNECTIONS_PER_ADDRESS": str(PER_ADDRESS),
        "BLOOM_MAX_DOWNLOADS_PER_USER": "1",
    }
    with live_server(home, **limits) as server:
        yield server


def _connect(live: LiveServer) -> socket.socket:
    parts = urlsplit(live.address)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=GIVE_UP_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _head(live: LiveServer, method: str, path: str, **headers: str) -> bytes:
    named = {"Host": urlsplit(live.address).netloc, **headers}
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{name.replace('_', '-')}: {value}" for name, value in named.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _read_to_end(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection; TimeoutError: it never does."""
    read = bytearray()
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            read += piece
    return bytes(read)


def _dribble(connection: socket.socket, data: bytes) -> threading.Thread:
    """Send one byte after the other, until the server closes or everything is sent."""

    def send() -> None:
        with suppress(OSError):
            for byte in data:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def _is_closed_while_dribbling(live: LiveServer, first: bytes, rest: bytes) -> bytes:
    """What the server answers, and that it closes before the client is done."""
    with _connect(live) as connection:
        connection.sendall(first)
        sender = _dribble(connection, rest)
        answer = _read_to_end(connection)
        # The next byte fails, and the thread ends.
        sender.join(GIVE_UP_SECONDS)
        return answer


def _is_served(live: LiveServer) -> bool:
    return httpx2.get(f"{live.address}/api/health", timeout=GIVE_UP_SECONDS).status_code == 200


@pytest.mark.long
def test_a_header_that_comes_by_drops_is_cut_off(live: LiveServer) -> None:
    start = b"GET /api/health HTTP/1.1\r\nX-Slow: "
    answer = _is_closed_while_dribbling(live, start, b"a" * 1000)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"request_timeout"' in answer


def test_a_connection_on_which_nothing_comes_is_closed(live: LiveServer) -> None:
    with _connect(live) as connection:
        assert _read_to_end(connection) == b""


@pytest.mark.long
def test_a_later_request_on_the_same_connection_is_limited_too(live: LiveServer) -> None:
    with _connect(live) as connection:
        connection.sendall(_head(live, "GET", "/api/health"))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        sender = _dribble(connection, b"GET /api/health HTTP/1.1\r\nX-Slow: " + b"a" * 1000)
        assert b"HTTP/1.1 408 " in _read_to_end(connection)
        sender.join(GIVE_UP_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("path", ["/api/auth/sign-in", "/api/jobs"])
def test_a_body_that_comes_by_drops_is_cut_off(live: LiveServer, path: str) -> None:
    # The second is refused before its body is read, and goes on sending all the same.
    head = _head(live, "POST", path, Content_Type="application/json", Content_Length="1000")
    answer = _is_closed_while_dribbling(live, head, b" " * 1000)
    assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 401 "))


@pytest.mark.long
def test_a_body_without_a_length_is_cut_off_as_well(live: LiveServer) -> None:
    head = _head(
        live, "POST", "/api/auth/sign-in", Content_Type="application/json", Transfer_Encoding="chunked"
    )
    answer = _is_closed_while_dribbling(live, head, b"1\r\n \r\n" * 200)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_others_are_served_meanwhile(live: LiveServer) -> None:
    slow = [_connect(live) for _ in range(PER_ADDRESS - 2)]
    try:
        for connection in slow:
            connection.sendall(b"POST /api/auth/sign-in HTTP/1.1\r\n")
        assert _is_served(live)
    finally:
        for connection in slow:
            connection.close()


class Uploader:
    """A person with an upload that has begun."""

    def __init__(self, live: LiveServer, size: int) -> None:
        self._live = live
        installation = Installation(live.home, f"sqlite+aiosqlite:///{live.home / 'bloom.db'}")
        self.user = installation.add_user(f"up{time.monotonic_ns()}")
        self.token = installation.add_token(self.user, "read", "write")[0]
        self.authorization = f"Bearer {self.token}"
        self.installation = installation
        with httpx2.Client(base_url=live.address, headers={"Authorization": self.authorization}) as client:
            made = client.post("/api/datasets", json={"name": "slow", "filename": "a.jsonl", "size": size})
            assert made.status_code == 201, made.text
        self.path = f"/api/datasets/{made.json()['id']}/content"

    def head(self, size: int) -> bytes:
        return _head(
            self._live,
            "PATCH",
            self.path,
            Authorization=self.authorization,
            Upload_Offset="0",
            Content_Length=str(size),
        )


@pytest.mark.long
def test_an_upload_that_progresses_is_never_cut(live: LiveServer) -> None:
    piece = b"x" * 4096
    count = round(6 * BODY_SECONDS / 0.2)
    uploader = Uploader(live, len(piece) * count)
    with _connect(live) as connection:
        connection.sendall(uploader.head(len(piece) * count))
        for _ in range(count):
            connection.sendall(piece)
            time.sleep(0.2)
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 204"), answer
    assert f"upload-offset: {len(piece) * count}".encode() in answer.lower()


def test_what_an_upload_brought_before_it_stood_still_is_kept(live: LiveServer) -> None:
    uploader = Uploader(live, 100_000)
    with _connect(live) as connection:
        connection.sendall(uploader.head(100_000) + b"x" * 60_000)
        assert _read_to_end(connection).startswith(b"HTTP/1.1 408 ")
    headers = {"Authorization": uploader.authorization}
    received = _wait_for(
        lambda: httpx2.head(f"{live.address}{uploader.path}", headers=headers).headers["Upload-Offset"],
        "60000",
    )
    assert received == "60000"


def _wait_for(read: Callable[[], str], wanted: str) -> str:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while (found := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.long
def test_an_answer_that_nobody_reads_is_cut_off(live: LiveServer) -> None:
    uploader = Uploader(live, 1)
    job = add_job(uploader.installation, uploader.user, status="completed")
    model = live.home / "runs" / str(job.id) / "model"
    model.mkdir(parents=True)
    with (model / "model.safetensors").open("wb") as file:
        file.truncate(500 << 20)
    path = f"/api/jobs/{job.id}/model/archive"
    headers = {"Authorization": uploader.authorization, "Range": "bytes=0-9"}
    with _connect(live) as connection:
        connection.sendall(_head(live, "GET", path, Authorization=uploader.authorization))
        assert connection.recv(12) == b"HTTP/1.1 200"
        # The only download of this person, and it holds nothing once the server has given it up.
        url = f"{live.address}{path}"
        assert httpx2.get(url, headers=headers).status_code == 429
        assert _wait_for(lambda: str(httpx2.get(url, headers=headers).status_code), "206") == "206"
        assert len(_read_to_end(connection)) < 500 << 20


def test_connections_of_one_address_are_limited_until_some_are_closed(live: LiveServer) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(_connect(live)) for _ in range(PER_ADDRESS)]
        for connection in held:
            connection.sendall(b"GET /api/health HTTP/1.1\r\n")
        # More than one, in case that the server closed an early one meanwhile.
        answers = []
        for _ in range(PER_ADDRESS):
            with _connect(live) as late:
                late.sendall(_head(live, "GET", "/api/health", Connection="close"))
                answers.append(_read_to_end(late))
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 429 ")]
        assert refused, answers
        assert b'"too_many_connections"' in refused[0]
        assert b"retry-after: " in refused[0].lower()
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        with suppress(httpx2.HTTPError):
            if httpx2.get(f"{live.address}/api/health").status_code == 200:
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _settings(**changes: object) -> Settings:
    return Settings(_env_file=None, **changes)  # type: ignore[arg-type]


def test_the_whole_server_has_a_limit_too() -> None:
    connections = Connections(_settings(max_connections=3))
    assert [connections.admit(f"10.0.0.{number}") for number in range(3)] == [None] * 3
    refusal = connections.admit("10.0.0.9")
    assert refusal is not None
    assert (refusal.status, refusal.code) == (503, "too_many_connections")
    connections.leave("10.0.0.1")
    assert connections.admit("10.0.0.9") is None


@pytest.mark.parametrize(
    ("proxies", "network", "limited"),
    [
        ("", "10.0.0.1", True),
        ("10.0.0.1, 10.0.0.2", "10.0.0.1", False),
        ("10.0.0.0/24", "10.0.0.77", False),
        ("10.0.0.0/24", "10.0.1.77", True),
        ("2001:db8::1", "2001:db8::/64", False),
        ("*", "2001:db8::/64", False),
        ("not an address", "10.0.0.1", True),
    ],
)
def test_a_trusted_proxy_carries_the_connections_of_everybody(
    proxies: str, network: str, *, limited: bool
) -> None:
    connections = Connections(_settings(max_connections_per_address=1, trusted_proxies=proxies))
    assert connections.admit(network) is None
    assert (connections.admit(network) is not None) == limited
