"""Large files over a slow uplink: few parts at once, so that each arrives in time."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpubloom.storage import StorageSettings, Store

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
