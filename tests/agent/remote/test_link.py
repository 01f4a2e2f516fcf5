"""Requests of a rented machine to its store, which may stand behind Cloudflare."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpubloom.agent.remote import start
from gpubloom.agent.remote.link import DamagedError, HttpLink, Rejected, Unavailable
from gpubloom.storage.bundle import _START, SentBundle
from gpubloom.traincard.retry import RetryPolicy

AGENT = b"import sys; print('the agent runs', sys.argv[1])"


class _Store(BaseHTTPRequestHandler):
    """Has one file, and refuses the name of Python's own HTTP library, as Cloudflare does."""

    content = AGENT

    def do_GET(self) -> None:
        self._answer(self.content)

    def do_PUT(self) -> None:
        type(self).content = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def _answer(self, content: bytes) -> None:
        refused = self.headers["User-Agent"].startswith("Python-urllib")
        content = b"error code: 1010" if refused else content
        self.send_response(403 if refused else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def store() -> Iterator[tuple[str, type[_Store]]]:
    handler = type("Store", (_Store,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/file", handler
    server.shutdown()
    server.server_close()


def test_a_store_behind_cloudflare_is_read_and_written(
    store: tuple[str, type[_Store]], tmp_path: Path
) -> None:
    address, _ = store
    link = HttpLink()
    link.put(address, b"batch")
    assert link.get(address) == b"batch"
    link.fetch(address, tmp_path / "file", hashlib.sha256(b"batch").hexdigest())


def test_a_job_starts_from_a_store_behind_cloudflare(store: tuple[str, type[_Store]], tmp_path: Path) -> None:
    address, handler = store
    agent = {"role": "agent", "address": address, "sha256": hashlib.sha256(AGENT).hexdigest()}
    start = json.dumps({"job_id": "j", "attempt": 1, "files": [agent]})
    program = _START.format(start=start)
    fetched = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "BLOOM_JOB_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert fetched.stdout == "the agent runs remote\n", fetched.stderr
    handler.content = b"print('the start script runs')"
    sent = SentBundle(address, hashlib.sha256(handler.content).hexdigest())
    started = subprocess.run(
        ["sh", "-c", sent.command],
        env={**os.environ, "BLOOM_START": f"{address}#c2VjcmV0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert started.stdout == "the start script runs\n", started.stderr


class _Breaking(_Store):
    """Closes connections after `most` bytes, the first `breaks` ones. `gives_parts`: it knows ranges."""

    content = bytes(range(256)) * 4000
    most = 100_000
    breaks = 100
    gives_parts = True
    sent = 0
    ranges: list[str | None] = []  # noqa: RUF012 - one list for each server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.ranges.append(asked)
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.gives_parts else 0
        if begin >= len(self.content):
            self.send_error(416)
            return
        rest = self.content[begin:]
        self.send_response(206 if asked and self.gives_parts else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        given = rest[: self.most] if len(self.ranges) <= self.breaks else rest
        type(self).sent += len(given)
        self.wfile.write(given)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[_Breaking]]]:
    monkeypatch.setattr(start, "_FETCH_RETRIES", RetryPolicy(0.01, 0.01, max_calls=30))
    handler = type("Breaking", (_Breaking,), {"ranges": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/file", handler
    server.shutdown()
    server.server_close()


def stored(address: str, content: bytes) -> start.StoredFile:
    return start.StoredFile("run", "weights", hashlib.sha256(content).hexdigest(), address)


def test_a_download_over_a_link_that_breaks_goes_on_where_it_stopped(
    breaking: tuple[str, type[_Breaking]], tmp_path: Path
) -> None:
    address, store = breaking
    start._fetch(HttpLink(), stored(address, store.content), tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == store.content
    # No byte twice, although the connection broke ten times.
    assert (len(store.ranges), store.sent) == (11, len(store.content))
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_a_store_that_gives_no_parts_sends_everything_again(
    breaking: tuple[str, type[_Breaking]], tmp_path: Path
) -> None:
    address, store = breaking
    store.gives_parts, store.breaks = False, 1
    link, file = HttpLink(), stored(address, store.content)
    with pytest.raises(Unavailable):
        link.fetch(address, tmp_path / "weights", file.sha256)
    link.fetch(address, tmp_path / "weights", file.sha256)
    assert (tmp_path / "weights").read_bytes() == store.content


def test_a_part_that_does_not_fit_the_rest_is_thrown_away_and_fetched_again(
    breaking: tuple[str, type[_Breaking]], tmp_path: Path
) -> None:
    address, store = breaking
    file = stored(address, store.content)
    store.breaks = 0
    part = tmp_path / f".{file.sha256}.part"
    part.write_bytes(b"x" * 1000)
    with pytest.raises(DamagedError):
        HttpLink().fetch(address, tmp_path / "weights", file.sha256)
    assert not (tmp_path / "weights").exists()
    HttpLink().fetch(address, tmp_path / "weights", file.sha256)
    assert (tmp_path / "weights").read_bytes() == store.content
    # Killed between the last byte and the renaming.
    part.write_bytes(store.content)
    HttpLink().fetch(address, tmp_path / "again", file.sha256)
    assert (tmp_path / "again").read_bytes() == store.content


def test_an_address_that_has_expired_is_rejected_in_the_middle_of_a_file_too(
    store: tuple[str, type[_Store]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.agent.remote.link._USER_AGENT", "Python-urllib")
    (tmp_path / f".{'0' * 64}.part").write_bytes(b"begin")
    with pytest.raises(Rejected):
        HttpLink().fetch(store[0], tmp_path / "weights", "0" * 64)


def test_the_start_script_fetches_the_agent_again_when_the_connection_breaks(
    breaking: tuple[str, type[_Breaking]], tmp_path: Path
) -> None:
    address, store = breaking
    store.content, store.most, store.breaks = AGENT, 10, 1
    agent = {"role": "agent", "address": address, "sha256": hashlib.sha256(AGENT).hexdigest()}
    text = _START.format(start=json.dumps({"job_id": "j", "attempt": 1, "files": [agent]}))
    fetched = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "BLOOM_JOB_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert fetched.stdout == "the agent runs remote\n", fetched.stderr
