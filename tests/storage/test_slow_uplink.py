"""Large files over a slow uplink: few parts at once, so that each arrives in time, and not too many."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpubloom.storage import StorageSettings, Store
from gpubloom.traincard.mirror.store import Bucket as MirrorBucket

pytest.importorskip("obstore")


class Bucket(ThreadingHTTPServer):
    """As much of S3 as an upload in parts needs. `most`: how many parts were on their way at once."""

    now = most = parts = 0
    lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        begins = self.path.endswith("?uploads") or self.path.endswith("?uploads=")
        kind = "InitiateMultipartUploadResult" if begins else "CompleteMultipartUploadResult"
        inner = "<UploadId>1</UploadId>" if begins else '<ETag>"e"</ETag>'
        self._answer(f"<{kind}><Bucket>bucket</Bucket><Key>k</Key>{inner}</{kind}>".encode())

    def do_PUT(self) -> None:
        with self.server.lock:
            self.server.now += 1
            self.server.parts += 1
            self.server.most = max(self.server.most, self.server.now)
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.4)
        with self.server.lock:
            self.server.now -= 1
        self._answer(b"")

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    server = Bucket(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_large_file_does_not_fill_a_slow_uplink_with_all_its_parts(bucket: Bucket, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(60 << 20)
    address = f"http://127.0.0.1:{bucket.server_port}"
    Store(StorageSettings("bucket", "key", "secret", address)).put("jobs/1/large", large)
    assert bucket.parts == 12
    assert bucket.most <= 4


class Calls:
    """Takes the place of obstore: notes how files would be uploaded."""

    def __init__(self) -> None:
        self.parts: list[int] = []
        self.at_once: list[int] = []

    def put(self, *arguments: Any, chunk_size: int = 5 << 20, max_concurrency: int = 12, **_: Any) -> None:
        content = arguments[-1]
        size = content.stat().st_size if isinstance(content, Path) else content.seek(0, 2)
        assert 5 << 20 <= chunk_size <= 5 << 30
        self.parts.append(-(-size // chunk_size))
        self.at_once.append(chunk_size * max_concurrency)


@pytest.mark.parametrize("gigabytes", [49, 60, 500, 4000])
def test_a_file_of_any_size_has_no_more_parts_than_a_service_takes(
    tmp_path: Path, gigabytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    large, calls = tmp_path / "large", Calls()
    with large.open("wb") as file:
        file.truncate(gigabytes * 10**9 + 1)
    store = Store(StorageSettings("bucket", "key", "secret", "http://127.0.0.1:1"))
    mirror = MirrorBucket("s3://bucket/run")
    monkeypatch.setattr(store, "_calls", calls)
    monkeypatch.setattr(mirror, "_store", calls)
    store.put("jobs/1/large", large)
    with large.open("rb") as opened:
        store.put("jobs/1/large", opened)
    with large.open("rb") as opened:
        mirror.put("large", opened)
    assert len(calls.parts) == 3
    assert max(calls.parts) <= 10_000
    # A part has to arrive within the time of a request, so larger ones go one by one.
    assert max(calls.at_once) <= max(20 << 20, gigabytes * 10**5 + (1 << 20))
