"""A real server process on a free port of loopback, and viewers that speak to it over real sockets."""

import base64
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gpubloom.traincard import Reporter

TIMEOUT = 120.0


@dataclass(frozen=True)
class Served:
    """A run that is being served."""

    run_dir: Path
    reporter: Reporter
    address: str
    token: str
    process: "subprocess.Popen[str]"

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    def ask(
        self, path: str, command: object = None, *, method: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and content of one answer; underscores in the names of headers are hyphens."""
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT)
        body = command if isinstance(command, bytes | None) else json.dumps(command).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        is_json = "json" in (answer.headers["Content-Type"] or "")
        return answer.status, json.loads(content) if is_json else content.decode()

    def send_command(self, command: object, **headers: str) -> tuple[int, Any]:
        return self.ask("/api/control", command, Authorization=f"Bearer {self.token}", **headers)


class Viewer:
    """A WebSocket client that shows single frames and can break the protocol, as no library does."""

    def __init__(self, host: str, **headers: str) -> None:
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=TIMEOUT)
        self._stream = self._socket.makefile("rb")
        said = {
            "Host": host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        lines = ["GET /ws HTTP/1.1", *(f"{key}: {value}" for key, value in said.items()), "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        self.status = int(self._stream.readline().split()[1])
        while self._stream.readline().strip():
            pass

    def frame(self) -> tuple[int, bytes]:
        first, size = self._stream.read(2)
        if size == 126:
            (size,) = struct.unpack("!H", self._stream.read(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._stream.read(8))
        return first & 0x0F, self._stream.read(size)

    def message(self) -> dict[str, Any]:
        while True:
            kind, content = self.frame()
            if kind == 1:
                found: dict[str, Any] = json.loads(content)
                return found

    def say(self, kind: int, content: bytes, *, masked: bool = True) -> None:
        mask = os.urandom(4)
        hidden = bytes(byte ^ mask[index % 4] for index, byte in enumerate(content))
        if masked:
            self._socket.sendall(bytes([0x80 | kind, 0x80 | len(content)]) + mask + hidden)
        else:
            self._socket.sendall(bytes([0x80 | kind, len(content)]) + content)

    def is_over(self) -> bool:
        return self._stream.read(1) == b""

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def start_server(run_dir: Path) -> tuple["subprocess.Popen[str]", str, str]:
    """`bloom runs serve`; the process, its address and its token."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.cli", "runs", "serve", str(run_dir)],
        env={**os.environ, "METRICS_SERVER_ADDR": "127.0.0.1:0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    address, _, token = line.removeprefix("Dashboard: ").strip().partition("#token=")
    return process, address, token


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run that goes on, as far as anybody can see, and its server."""
    run_dir = tmp_path_factory.mktemp("live") / "run"
    with Reporter(run_dir, telemetry_seconds=0, flush_seconds=0.05) as reporter:
        for step in range(1, 51):
            reporter.metrics({"train/loss": 2 - step / 100, "train/learning_rate": 1e-3}, step=step)
        # The page offers commands once the loop looks for them.
        reporter.control.poll()
        reporter.log("the first line")
        reporter.flush()
        process, address, token = start_server(run_dir)
        yield Served(run_dir, reporter, address, token, process)
        process.terminate()
        assert process.wait(TIMEOUT) == 0
        process.communicate()
