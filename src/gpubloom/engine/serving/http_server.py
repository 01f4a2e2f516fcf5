"""The HTTP server of a model: OpenAI's routes on a loopback port, behind a token.

The standard library's server is enough for one person's questions, and adds no dependency to training.
"""

import hmac
import json
import select
import socket
import sys
import traceback
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from gpubloom.engine.serving.openai_protocol import Rejected, Shape, usage
from gpubloom.engine.serving.service import ParsedRequest, Service

_LARGEST_BODY = 8 << 20
# So much of a body that is not wanted is still read, so that its sender gets to read the answer.
_MOST_DISCARDED = 64 << 20
_PIECE = 1 << 16
_READ_SECONDS = 60.0
_LOST = (BrokenPipeError, ConnectionError, TimeoutError)


class Listener(ThreadingHTTPServer):
    """Listens on a free port of the loopback address."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, service: Service, token: str) -> None:
        self.service = service
        self.token = token
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's mistake; all else belongs in the log."""
        if not isinstance(sys.exc_info()[1], _LOST):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = _READ_SECONDS
    # A token is a small packet that should not wait for another one.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, respond: Any) -> None:
        self._begun = False
        length = self.headers.get("Content-Length", "")
        self._unread = int(length) if length.isdecimal() else 0
        try:
            self._must_be_allowed()
            respond()
        except Rejected as problem:
            self._refuse(problem)
        except _LOST:
            self.close_connection = True
        except torch.OutOfMemoryError:
            sentence = "The device ran out of memory while answering: ask for less, or end what else uses it."
            self._refuse(Rejected(sentence, status=503, code="not_enough_memory", kind="server_error"))
        except Exception as problem:  # noqa: BLE001 - whoever asked must hear of it, whatever it was
            traceback.print_exc()
            sentence = f"The model failed: {problem}"
            self._refuse(Rejected(sentence, status=500, code="failed", kind="server_error"))

    def _must_be_allowed(self) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            raise Rejected(
                "The token is missing or wrong: send the header Authorization: Bearer TOKEN with the token "
                "of serve.json.",
                status=401,
                code="invalid_api_key",
            )

    def _get(self) -> None:
        registry, formatter = self.server.service.registry, self.server.service.formatter
        if self.path == "/health":
            facts = {"status": "ok", **registry.facts(), "context_length": registry.context_length}
            facts |= {"chat_template": formatter.template is not None, "chat_note": formatter.note}
            self._send(200, facts)
        elif self.path == "/v1/models":
            models = [
                {"id": name, "object": "model", "created": 0, "owned_by": "gpubloom"}
                for name in registry.names
            ]
            self._send(200, {"object": "list", "data": models})
        else:
            raise self._no_such_path()

    def _post(self) -> None:
        chats = {"/v1/chat/completions": True, "/v1/completions": False}
        if self.path not in chats:
            raise self._no_such_path()
        body = self._body()
        with self.server.service.asked(chat=chats[self.path], body=body, gone=self._is_gone) as asked:
            shape = Shape(chat=asked.is_chat, model=asked.model)
            if asked.request.stream:
                self._stream(asked, shape)
            else:
                self._whole(asked, shape)

    def _whole(self, asked: ParsedRequest, shape: Shape) -> None:
        text, answer = "".join(asked.answer), asked.answer
        self._must_be_finished(asked)
        used = usage(answer.prompt_tokens, answer.tokens)
        self._send(200, shape.whole(text, answer.finish_reason, used))

    def _stream(self, asked: ParsedRequest, shape: Shape) -> None:
        pieces = iter(asked.answer)
        # Only then is it certain that the question can be answered, and so which status to send.
        first = next(pieces, None)
        self._begun = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if (begin := shape.begin()) is not None:
            self._event(begin)
        for piece in _with_first(first, pieces):
            self._event(shape.piece(piece))
        self._must_be_finished(asked)
        answer, options = asked.answer, asked.request.stream_options
        self._event(shape.end(answer.finish_reason))
        if options is not None and options.include_usage:
            self._event(shape.used(usage(answer.prompt_tokens, answer.tokens)))
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _must_be_finished(self, asked: ParsedRequest) -> None:
        if asked.answer.finish_reason != "gone":
            return
        if self.server.service.is_closing:
            sentence = "The model is being unloaded; start it again to go on."
            raise Rejected(sentence, status=503, code="unloading", kind="server_error")
        raise ConnectionAbortedError

    def _event(self, content: dict[str, Any]) -> None:
        # Escaped: many readers take characters such as U+2028 for the end of a line.
        self._chunk(f"data: {json.dumps(content)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _body(self) -> Any:
        if not self.headers.get("Content-Length", "").isdecimal():
            self.close_connection = True
            raise Rejected(
                "A request needs a body and its Content-Length.", status=411, code="length_required"
            )
        if self._unread > _LARGEST_BODY:
            sentence = f"The body has {self._unread:,} bytes; at most {_LARGEST_BODY:,} are read."
            raise Rejected(sentence, status=413, code="too_large")
        content = self.rfile.read(self._unread)
        self._unread = 0
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as problem:
            raise Rejected(f"The body is not JSON: {problem}.", code="malformed_json") from None

    def _discard_body(self) -> None:
        """What was not read would be taken for the next request."""
        if self._unread > _MOST_DISCARDED:
            self.close_connection = True
            return
        while self._unread and (piece := self.rfile.read(min(_PIECE, self._unread))):
            self._unread -= len(piece)

    def _is_gone(self) -> bool:
        """Whether the client has closed the connection; one that sent a further request has not."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        if not readable:
            return False
        try:
            return len(self.connection.recv(1, socket.MSG_PEEK)) == 0
        except OSError:
            return True

    def _refuse(self, problem: Rejected) -> None:
        try:
            if self._begun:
                self._event(problem.body)
                self._chunk(b"")
            else:
                self._discard_body()
                self._send(problem.status, problem.body)
        except _LOST:
            self.close_connection = True

    def _no_such_path(self) -> Rejected:
        return Rejected(
            f"There is nothing at {self.command} {self.path}; there are GET /health, GET /v1/models, "
            "POST /v1/chat/completions and POST /v1/completions.",
            status=404,
            code="not_found",
        )

    def _send(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library itself refuses, in the same form as all other errors."""
        self.close_connection = True
        sentence = message or HTTPStatus(code).phrase
        self._send(code, Rejected(f"{sentence}.", status=code, code=HTTPStatus(code).name.lower()).body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing: what was asked is counted, what was said is nobody's business."""


def _with_first(first: str | None, rest: Iterator[str]) -> Iterator[str]:
    if first is not None:
        yield first
        yield from rest
