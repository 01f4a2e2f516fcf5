"""A fake of GitHub and Google on the loopback address.

It answers as their documents say: form-encoded token requests with a PKCE verifier, bearer tokens for the
profile, GitHub's separate list of addresses.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class FakeProvider:
    """What the provider knows, and what it was asked."""

    port: int = 0
    profile: dict[str, Any] = field(default_factory=dict)
    emails: list[dict[str, Any]] = field(default_factory=list)
    # The PKCE challenge of the page that was opened; the code can only be redeemed with its verifier.
    challenge: str = ""
    token_requests: list[dict[str, str]] = field(default_factory=list)
    broken: bool = False
    # What lies at /picture, for everybody; an address instead leads there.
    picture: bytes | str = b""

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def opened(self, link: str) -> dict[str, str]:
        """A person opened the provider's page and agreed; gives the page's parameters."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
        assert query["code_challenge_method"] == "S256"
        self.challenge = query["code_challenge"]
        return query

    def redeem(self, form: dict[str, str]) -> dict[str, str]:
        self.token_requests.append(form)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        verified = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self.challenge
        if form.get("code") != "good-code" or not verified or form.get("client_secret") != "client-secret":
            # GitHub answers 200 with an error inside.
            return {"error": "bad_verification_code"}
        return {"access_token": "provider-token", "token_type": "bearer"}


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def _answer(self, body: object, status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        provider = self.server.provider
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer(provider.redeem({name: values[0] for name, values in form.items()}))

    def do_GET(self) -> None:
        provider = self.server.provider
        if self.path == "/picture":
            self._show(provider.picture)
            return
        if provider.broken or self.headers["Authorization"] != "Bearer provider-token":
            self._answer({"message": "Bad credentials"}, 401)
        else:
            self._answer(provider.emails if self.path == "/emails" else provider.profile)

    def _show(self, picture: bytes | str) -> None:
        if isinstance(picture, str):
            self.send_response(302)
            self.send_header("Location", picture)
            picture = b""
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(picture)))
        self.end_headers()
        self.wfile.write(picture)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: FakeProvider


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.provider = FakeProvider(port=server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
