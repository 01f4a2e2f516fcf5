"""A receiver of webhooks on this machine."""

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """Keeps what it takes in. `answers`: the status of the next requests, then 200."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.tried: list[str] = []
        self.answers: list[int] = []
        self._bodies: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.answers.pop(0) if outer.answers else 200
                outer.tried.append(self.headers.get("X-Bloom-Delivery", ""))
                if status == 200:
                    outer._bodies.append(body)
                    outer.headers.append(dict(self.headers.items()))
                    outer.messages.append(json.loads(body))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"{outer.address}/redirected")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def signed_with(self, secret: str) -> list[bool]:
        """Of each message, whether its signature was made with this secret."""
        found = []
        for headers, body in zip(self.headers, self._bodies, strict=True):
            signed = f"{headers.get('X-Bloom-Timestamp', '')}.".encode() + body
            digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
            found.append(headers.get("X-Bloom-Signature") == f"sha256={digest}")
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
