"""A client that asks for a converted dataset and does not read it costs the server next to nothing."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from gpubloom.server.settings import Settings
from tests.live_server import live_server
from tests.server.bringing import prepare
from tests.server.installation import Installation
from tests.waiting import wait_until

ROW = b'{"prompt": "%s", "completion": "b"}\n' % (b"a" * 1_000)
ROWS = ROW * 40_000


@pytest.mark.long
def test_a_client_that_does_not_read_holds_next_to_nothing_and_its_child_ends_with_it(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with live_server(home) as server:
        installation = Installation(home, f"sqlite+aiosqlite:///{home / 'bloom.db'}")
        token, _ = installation.add_token(installation.add_user("Ada"), "read", "write")
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=server.address, headers=headers, timeout=120) as client:
            body = {"filename": "a.jsonl", "size": len(ROWS)}
            dataset_id = client.post("/api/datasets", json=body).json()["id"]
            client.patch(
                f"/api/datasets/{dataset_id}/content", content=ROWS, headers={"Upload-Offset": "0"}
            ).raise_for_status()
            prepare(Settings(_env_file=None, home=home))
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        host = urlsplit(server.address).netloc
        request = (
            f"GET /api/datasets/{dataset_id}/converted HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        with _asked(server.address, request):
            child = _reader_of(process)
            _wait_until_idle(child)
            assert process.memory_info().rss - before < 8 << 20
            assert child.is_running()
        wait_until(lambda: not child.is_running(), "the child of a client that left ends")
        with _asked(server.address, request):
            child = _reader_of(process)
            _wait_until_idle(child)
            server.process.kill()
            wait_until(lambda: not child.is_running(), "the child of a server that was killed ends")


@contextmanager
def _asked(address: str, request: str) -> Iterator[None]:
    """A connection whose client reads the first bytes of the answer and no more."""
    parts = urlsplit(address)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect((parts.hostname, parts.port))
        connection.sendall(request.encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield


def _reader_of(server: psutil.Process) -> psutil.Process:
    wait_until(server.children, "the conversion starts")
    return server.children()[0]


def _wait_until_idle(child: psutil.Process) -> None:
    """Until it waits for somebody to take what it wrote."""
    quiet, last = 0, -1.0
    deadline = time.monotonic() + 60
    while quiet < 5:
        assert time.monotonic() < deadline, "the conversion never waits"
        assert child.is_running(), "the server took all of it"
        spent = sum(child.cpu_times()[:2])
        quiet = quiet + 1 if spent == last else 0
        last = spent
        time.sleep(0.2)
