"""A fake OpenAI-compatible endpoint on loopback that writes one pair about each passage it gets."""

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PASSAGE = re.compile(r"<passage>\n(.*)\n</passage>", re.DOTALL)


@dataclass
class FakeEndpoint:
    """What it was asked, and what it answers: a text, or a status with an error."""

    address: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    answer: Callable[[str], str | int] = lambda passage: pair_about(passage)
    usage: int | None = 100
    # Sends every answer compressed, whether that was asked for or not.
    packed: bool = False
    # Answers wait for it.
    gate: threading.Event = field(default_factory=threading.Event)


def pair_about(passage: str) -> str:
    first = passage.splitlines()[-1]
    return json.dumps({"pairs": [{"question": f"What is known about: {first[:40]}?", "answer": first}]})


@contextmanager
def serving() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint()
    endpoint.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions", self.path
            endpoint.asked.append(body)
            endpoint.keys.append(self.headers["Authorization"])
            found = PASSAGE.search(body["messages"][-1]["content"])
            assert found is not None
            endpoint.gate.wait(60)
            said = endpoint.answer(found[1])
            if isinstance(said, int):
                self._send(said, {"error": {"message": f"refused with {said}"}})
                return
            message = {"role": "assistant", "content": said}
            content: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            if endpoint.usage is not None:
                content["usage"] = {"total_tokens": endpoint.usage}
            self._send(200, content)

        def _send(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            if endpoint.packed:
                data = gzip.compress(data)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            # Whoever stopped an order no longer listens.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield endpoint
        endpoint.gate.set()
        server.shutdown()
