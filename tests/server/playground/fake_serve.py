"""A process that holds a model, as far as the server can tell: it follows the contract and says little.

Prompts steer it: `slow` writes a word at a time and waits for a `go` between two; `refuse` is refused; `die`
breaks the connection in the middle.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

TOKEN = "token-of-the-process"
WORDS = ("One", " two", " three")


class FakeServe(ThreadingMixIn, UnixStreamServer):
    """Listens on a socket file; remembers what it was asked and whether its client stayed."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path) -> None:
        self.file = folder / "fake.sock"
        super().__init__(str(self.file), _Handler)
        self.asked: list[dict[str, Any]] = []
        self.go = threading.Semaphore(0)
        self.left = threading.Event()

    def announce(self, home: Path, job_id: UUID, *, models: tuple[str, ...] = ("base", "tuned")) -> None:
        """Write serve.json into a job's directory."""
        folder = home / "runs" / str(job_id)
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "v": 1,
            "port": 1,
            "token": TOKEN,
            "models": list(models),
            "context_length": 512,
            "chat_template": True,
        }
        (folder / "serve.json").write_text(json.dumps(content))
        (folder / "serve.sock").unlink(missing_ok=True)
        # Another name of the same socket.
        os.link(self.file, folder / "serve.sock")


@contextmanager
def fake_serve() -> Iterator[FakeServe]:
    # The name of a socket is short, so the folder of a test will not do. Beside it, a link needs one disk.
    with TemporaryDirectory(prefix="serve-") as folder, FakeServe(Path(folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServe

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, "body": body, "headers": dict(self.headers)})
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(401, {"error": {"message": "no"}})
            return
        text = json.dumps(body)
        if "refuse" in text:
            self._answer(
                400,
                {
                    "error": {
                        "message": "The prompt is too long by 7 tokens.",
                        "code": "context_length_exceeded",
                    }
                },
            )
        elif body.get("stream"):
            self._stream(text)
        else:
            if "slow" in text:
                self._wait_for_the_client_to_leave()
                return
            message = {"role": "assistant", "content": "".join(WORDS)}
            choice = {"index": 0, "message": message, "text": "".join(WORDS), "finish_reason": "stop"}
            kind = "chat.completion" if "chat" in self.path else "text_completion"
            self._answer(
                200,
                {"id": "x", "object": kind, "created": 1, "model": body.get("model"), "choices": [choice]},
            )

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for number, word in enumerate(WORDS):
                if "slow" in text and number:
                    self.server.go.acquire(timeout=60)
                if "die" in text and number == 1:
                    self.close_connection = True
                    self.connection.close()
                    return
                delta = {"index": 0, "delta": {"content": word}, "finish_reason": None}
                event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                self._chunk(f"data: {json.dumps({**event, 'choices': [delta]})}\n\n")
            self._chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.server.left.set()
            self.close_connection = True

    def _chunk(self, text: str) -> None:
        content = text.encode()
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _wait_for_the_client_to_leave(self) -> None:
        self.connection.settimeout(30)
        if self.connection.recv(1) == b"":
            self.server.left.set()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Nobody reads it."""
