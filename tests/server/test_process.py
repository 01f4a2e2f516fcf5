"""`bloom server start` as a process: what it prints, what it refuses, what comes over a real socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.errors import printed
from tests.live_server import live_server
from tests.server.installation import PASSWORD


def _give_up(
    command: str, home: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start a server that is expected to give up."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOM_")}
    clean.pop("PORT", None)
    return subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", *command.split(), *arguments],
        env={**clean, "BLOOM_HOME": str(home), **environment},
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
def test_first_start_prints_a_link_that_works_once_and_the_second_start_prints_none(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with live_server(home) as server:
        health = httpx2.get(f"{server.address}/api/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert "server" not in health.headers
        token = urlsplit(server.setup_link).fragment.removeprefix("token=")
        body = {"token": token, "name": "Grace", "email": "grace@example.org", "password": PASSWORD}
        assert httpx2.post(f"{server.address}/api/auth/setup", json=body).status_code == 201
        assert httpx2.post(f"{server.address}/api/auth/setup", json=body).status_code == 409
        _refuses_large_bodies(server.address)
    with live_server(home) as again:
        assert "/setup#" not in again.text
        assert httpx2.get(f"{again.address}/api/auth/state").json()["setup_required"] is False
    assert home.stat().st_mode & 0o077 == 0, "other users of the machine cannot look inside"


def _refuses_large_bodies(address: str) -> None:
    host, port = urlsplit(address).hostname, urlsplit(address).port
    path = f"{address}/api/auth/sign-in"
    assert httpx2.post(path, content=b"x" * 2_000_000).status_code == 413

    def forever() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    answer = httpx2.post(path, content=forever(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413, "counted as it comes, whatever was declared"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for length in ("-1", "x", "9" * 5000):
        with socket.create_connection((host, port), timeout=10) as raw:
            head = f"POST /api/auth/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
            raw.sendall(head.encode())
            assert raw.recv(100).split()[1][:1] == b"4", length
    assert httpx2.get(f"{address}/api/health").status_code == 200


def _lines(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """What it printed for its end; `bloom up` first says that it starts."""
    return ended.stderr.removeprefix("Starting the web app …\n").strip().splitlines()


@pytest.mark.long
@pytest.mark.parametrize("command", ["server start", "up"])
def test_an_occupied_port_ends_with_one_sentence(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = _give_up(command, tmp_path / "home", "--port", str(port))
    assert ended.returncode == 2
    assert printed(ended.stderr) == ["cannot_listen"]
    assert f"127.0.0.1:{port}" in ended.stderr
    assert len(_lines(ended)) == 1


@pytest.mark.long
@pytest.mark.parametrize("command", ["server start", "up"])
def test_settings_that_cannot_be_used_are_named_on_one_line(tmp_path: Path, command: str) -> None:
    wrong = {
        "BLOOM_PORT": "many",
        "BLOOM_SIGNUP": "perhaps",
        "BLOOM_PUBLIC_URL": "bloom.example.org",
        "BLOOM_DATABASE_URL": "mysql://root:hunter2@localhost/x",
    }
    ended = _give_up(command, tmp_path / "home", **wrong)
    assert (ended.returncode, printed(ended.stderr)) == (2, ["invalid_settings"])
    assert len(_lines(ended)) == 1
    assert all(f"{name}: " in ended.stderr for name in wrong)
    assert "hunter2" not in ended.stderr
    assert "Value error" not in ended.stderr
