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

from gpubloom.agent.remote.link import HttpLink
from gpubloom.storage.bundle import _START, SentBundle

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
