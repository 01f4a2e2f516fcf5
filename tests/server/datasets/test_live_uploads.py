"""Uploads over a real socket to a real server: cut off, server killed in the middle, a gigabyte."""

import hashlib
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from tests.live_server import LiveServer, live_server
from tests.server.installation import Installation

TIMEOUT_SECONDS = 120
PIECE = 4_000_000


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    """A program of somebody's; `_let_in` makes the server know it."""
    with httpx2.Client(timeout=120) as client:
        yield client


def _let_in(client: httpx2.Client, server: LiveServer) -> None:
    installation = Installation(server.home, f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
    token, _ = installation.add_token(installation.add_user("Ada"), "read", "write")
    client.headers["Authorization"] = f"Bearer {token}"
    client.base_url = httpx2.URL(server.address)


def _cut_off(client: httpx2.Client, path: str, offset: int, size: int, content: bytes) -> None:
    """Say that `size` bytes come, send fewer, and hang up."""
    parts = urlsplit(str(client.base_url))
    head = (
        f"PATCH {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpload-Offset: {offset}\r\n"
        f"Authorization: {client.headers['Authorization']}\r\nContent-Length: {size}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(head.encode() + content)
        # Until the server has seen them: closing at once may throw them away.
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while _offset(client, path) < offset and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)


def _offset(client: httpx2.Client, path: str) -> int:
    return int(client.head(path).headers["Upload-Offset"])


def _settled(client: httpx2.Client, path: str, at_least: int) -> int:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (offset := _offset(client, path)) < at_least:
        assert time.monotonic() < deadline, f"{offset} of {at_least}"
        time.sleep(0.05)
    return offset


def _send(client: httpx2.Client, path: str, content: bytes, offset: int) -> httpx2.Response:
    """One piece; waits while another one is still being written."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        answer = client.patch(path, content=content, headers={"Upload-Offset": str(offset)})
        busy = answer.status_code == 409 and answer.json()["code"] == "upload_busy"
        if not busy or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


@pytest.mark.long
def test_an_upload_goes_on_after_a_cut_and_after_a_killed_server(
    tmp_path: Path, client: httpx2.Client
) -> None:
    home = tmp_path / "home"
    line = json.dumps({"prompt": "What?", "completion": "That."}).encode() + b"\n"
    content = line * 100_000
    third = len(content) // 3
    with live_server(home) as server:
        _let_in(client, server)
        body = {"filename": "big.jsonl", "size": len(content)}
        dataset_id = client.post("/api/datasets", json=body).json()["id"]
        path = f"/api/datasets/{dataset_id}/content"
        _cut_off(client, path, 0, len(content), content[:third])
        assert _settled(client, path, third) == third
        assert client.get(f"/api/datasets/{dataset_id}").json()["status"] == "uploading"
        refused = _send(client, path, content, 0)
        assert (refused.status_code, refused.headers["Upload-Offset"]) == (409, str(third))
        second = _send(client, path, content[third : 2 * third], third)
        assert (second.status_code, second.headers["Upload-Offset"]) == (204, str(2 * third))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with live_server(home, command="up") as server:
        client.base_url = httpx2.URL(server.address)
        shown = client.get(f"/api/datasets/{dataset_id}").json()
        assert (shown["status"], shown["received"]) == ("uploading", 2 * third)
        assert _send(client, path, content[2 * third :], 2 * third).status_code == 204
        dataset = _until_inspected(client, dataset_id)
        assert (dataset["status"], dataset["report"]["rows"]) == ("ready", 100_000)
        stored = home / "datasets" / dataset_id / "data.jsonl"
        assert hashlib.sha256(stored.read_bytes()).digest() == hashlib.sha256(content).digest()
        assert "Traceback" not in server.text


def _until_inspected(client: httpx2.Client, dataset_id: str, seconds: float = TIMEOUT_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        dataset = client.get(f"/api/datasets/{dataset_id}").json()
        if dataset["status"] in {"ready", "failed"}:
            return dataset
        assert time.monotonic() < deadline, dataset
        time.sleep(0.2)


def _large(path: Path, rows: int, size: int) -> None:
    """Rows of about equal length, no two alike."""
    filler = "word " * 400
    with path.open("wb", buffering=1 << 20) as file:
        for number in range(rows):
            length = size * (number + 1) // rows - size * number // rows
            head = f'{{"prompt": "Question {number}?", "completion": "'
            file.write((head + filler[: length - len(head) - 3] + '"}\n').encode())


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield offset, piece
            offset += len(piece)


class _Watch(threading.Thread):
    """The highest memory of a server and its children: readers of pages belong to it."""

    def __init__(self, server: LiveServer) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(server.process.pid)
        self._ended = threading.Event()
        self.idle = self.highest = self._resident()

    def _resident(self) -> int:
        total = 0
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.highest = max(self.highest, self._resident())

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_gigabyte_arrives_is_shown_and_takes_little_memory(tmp_path: Path, client: httpx2.Client) -> None:
    """Wall-clock figures are printed, not asserted: they depend on the machine."""
    home, rows, size = tmp_path / "home", 1_000_000, 1_000_000_000
    large = tmp_path / "large.jsonl"
    _large(large, rows, size)
    assert large.stat().st_size == size
    with live_server(home) as server:
        _let_in(client, server)
        client.get("/api/datasets")
        watch = _Watch(server)
        watch.start()
        dataset_id = client.post("/api/datasets", json={"filename": "large.jsonl", "size": size}).json()["id"]
        path, begun, seen = f"/api/datasets/{dataset_id}/content", time.monotonic(), []
        for offset, piece in _pieces(large):
            assert _send(client, path, piece, offset).status_code == 204
            if offset % (50 * PIECE) == 0:
                seen.append(client.get(f"/api/datasets/{dataset_id}").json()["received"])
        uploaded = time.monotonic() - begun
        assert seen == sorted(set(seen)), "progress grows"
        times = []
        for _ in range(5):
            begun = time.monotonic()
            page = client.get(f"/api/datasets/{dataset_id}/preview").json()
            times.append(time.monotonic() - begun)
        watch.end()
        above = watch.highest - watch.idle
        assert page["items"][0]["raw"]["prompt"] == "Question 0?"
        print(
            f"\nupload {size / uploaded / 1e6:,.0f} MB/s, preview {statistics.median(times):.2f} s "
            f"(first {times[0]:.2f} s), {above / 1e6:,.0f} MB above {watch.idle / 1e6:,.0f} MB idle"
        )
        assert above < 300_000_000
    with live_server(home, command="up") as server:
        client.base_url = httpx2.URL(server.address)
        begun = time.monotonic()
        dataset = _until_inspected(client, dataset_id, 1200)
        print(f"inspected in {time.monotonic() - begun:,.0f} s")
        report = dataset["report"]
        assert (report["rows"], report["examples"], report["duplicates"]["repeated"]) == (rows, rows, 0)
        begun = time.monotonic()
        last = client.get(f"/api/datasets/{dataset_id}/preview", params={"offset": 999_980}).json()
        print(f"last page in {time.monotonic() - begun:.2f} s")
        assert last["items"][-1]["raw"]["prompt"] == f"Question {rows - 1}?"
    os.remove(large)
