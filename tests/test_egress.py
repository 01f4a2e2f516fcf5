"""Outgoing connections: private addresses are refused after resolving, unless the operator lists them."""

import asyncio
import gzip
import re
import socket
import threading
import urllib.error
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gpubloom.egress import EgressRefused, Policy
from gpubloom.egress.clients import AnswerRefused, async_client, client, read_bounded, tls_context
from gpubloom.egress.downloads import opener
from gpubloom.egress.policy import is_public, read_allowed
from gpubloom.errors import InputError
from gpubloom.providers.cloud import Fault
from gpubloom.providers.http_client import RateLimit, ServiceHttp
from gpubloom.providers.ray.provider import PROVIDER

ROOT = Path(__file__).parents[1]


class _Server(BaseHTTPRequestHandler):
    """Answers with the name it was asked by; /to/ADDRESS redirects."""

    hits: list[str]

    def do_GET(self) -> None:
        type(self).hits.append(self.path)
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def _serving() -> Iterator[tuple[int, list[str]]]:
    handler = type("Handler", (_Server,), {"hits": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1], handler.hits  # type: ignore[attr-defined]
        server.shutdown()


@pytest.fixture
def service() -> Iterator[tuple[int, list[str]]]:
    with _serving() as found:
        yield found


@pytest.fixture
def nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOOM_EGRESS_ALLOW")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
        *("::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "fec0::1", "2001:db8::1", "2001::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not is_public(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(EgressRefused):
        Policy().check_address(f"http://{host}:80/")
    with pytest.raises(EgressRefused):
        Policy().resolve(address, 80)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://a.org", "ray://a.org", "os://a.org", "//a.org", "a.org", "http://"],
)
def test_other_schemes_are_refused(address: str) -> None:
    with pytest.raises(EgressRefused):
        Policy().check_address(address)


@pytest.mark.parametrize("spelled", ["2130706433", "0x7f000001", "017700000001", "127.1", "localhost"])
def test_other_spellings_of_loopback_are_refused(spelled: str, nothing_listed: None) -> None:
    with pytest.raises((EgressRefused, OSError)), client(Policy.of_operator()) as http:
        http.get(f"http://{spelled}:1/")


def test_no_client_connects_to_loopback_unless_it_is_listed(
    service: tuple[int, list[str]], nothing_listed: None
) -> None:
    port, hits = service
    address = f"http://localhost:{port}/"

    async def ask(policy: Policy) -> str:
        async with async_client(policy) as http:
            return (await http.get(address)).text

    def look(policy: Policy) -> str:
        with client(policy) as http:
            return http.get(address).text

    def fetch(policy: Policy) -> str:
        with opener(policy).open(address, timeout=10) as answer:
            return str(answer.read().decode())

    for call in (lambda policy: asyncio.run(ask(policy)), look, fetch):
        with pytest.raises(EgressRefused):
            call(Policy.of_operator())
        assert hits == []
        listed = Policy.of_operator(environment={"BLOOM_EGRESS_ALLOW": "127.0.0.0/8, ::1"})
        assert call(listed) == f"localhost:{port}", "TLS and virtual hosts still see the name"
        assert call(Policy.of_operator(address)) == f"localhost:{port}", "the operator's own setting"
        hits.clear()


def test_a_redirect_to_a_private_address_is_refused(
    service: tuple[int, list[str]], nothing_listed: None
) -> None:
    port, hits = service
    policy = Policy.of_operator(f"http://localhost:{port}")
    address = f"http://localhost:{port}/to/http://127.0.0.1:{port}/secret"

    async def ask() -> None:
        async with async_client(policy, follow_redirects=True) as http:
            await http.get(address)

    with pytest.raises(EgressRefused):
        asyncio.run(ask())
    with pytest.raises(EgressRefused), client(policy, follow_redirects=True) as http:
        http.get(address)
    with pytest.raises(EgressRefused):
        opener(policy).open(address, timeout=10)
    with pytest.raises((EgressRefused, urllib.error.URLError)):
        opener(policy).open(f"http://localhost:{port}/to/file:///etc/passwd", timeout=10)
    assert not [path for path in hits if path.startswith("/secret")]


def test_a_client_for_one_host_follows_its_redirects_by_https_only(service: tuple[int, list[str]]) -> None:
    port, hits = service
    hub, store = f"http://localhost:{port}", f"127.0.0.1:{port}"
    loopback = Policy.of_operator(environment={"BLOOM_EGRESS_ALLOW": "127.0.0.0/8, ::1"})
    with client(loopback, only=hub, follow_redirects=True) as http:
        assert http.get(f"{hub}/file").text == f"localhost:{port}"
        for address in (f"http://{store}/direct", f"{hub}/to/http://{store}/plain"):
            with pytest.raises(EgressRefused):
                http.get(address)
        # Followed; this server speaks no TLS.
        with pytest.raises(httpx2.ConnectError):
            http.get(f"{hub}/to/https://{store}/secure")
    assert "/direct" not in hits
    assert "/plain" not in hits
    listed = Policy.of_operator(hub, f"http://{store}")
    with client(listed, only=hub, follow_redirects=True) as http:
        assert http.get(f"{hub}/to/http://{store}/plain").text == store


def test_a_name_that_resolves_to_something_else_the_second_time_gains_nothing(
    monkeypatch: pytest.MonkeyPatch, nothing_listed: None
) -> None:
    """DNS rebinding: the connection goes to an address of the answer that was checked."""
    answers = iter(["93.184.215.14", "127.0.0.1", "127.0.0.1"])
    real, connected = socket.getaddrinfo, []

    def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        return real(next(answers) if host == "rebinding.example" else host, port, *rest, **more)

    def connect(address: tuple[str, int], *_: Any, **__: Any) -> Any:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(httpx2.ConnectError), client(Policy.of_operator()) as http:
        http.get("http://rebinding.example/")
    assert connected == ["93.184.215.14"]


def test_a_name_with_one_private_address_among_public_ones_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in ("8.8.8.8", "10.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(EgressRefused):
        Policy().resolve("mixed.example", 80)


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8265", "http://169.254.169.254", "http://[::ffff:10.0.0.1]:1", "http://localhost:1"],
)
def test_a_ray_address_of_a_member_does_not_reach_into_the_network(
    address: str, nothing_listed: None
) -> None:
    with pytest.raises(Fault, match="private or reserved") as refused:
        asyncio.run(PROVIDER.open({"address": address}).check())
    assert refused.value.kind == "refused"


@pytest.mark.parametrize("address", ["this://x", "antigravity://x", "ray://head:10001", "local", "auto"])
def test_the_scheme_of_a_ray_address_imports_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr("importlib.import_module", lambda name, *_: imported.append(name))
    with pytest.raises(Fault, match="must start with http"):
        asyncio.run(PROVIDER.open({"address": address}).check())
    assert imported == []


def test_the_ray_address_of_the_operator_counts_as_listed(
    service: tuple[int, list[str]], nothing_listed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"http://127.0.0.1:{service[0]}")
    with pytest.raises(Fault):
        asyncio.run(PROVIDER.open({}).check())
    assert service[1], "it was called"


def test_a_service_is_called_at_the_address_that_the_operator_gave(
    service: tuple[int, list[str]], nothing_listed: None
) -> None:
    http = ServiceHttp("Toy", f"http://127.0.0.1:{service[0]}", "key", RateLimit(0.0), lambda *_: (None, ""))
    with pytest.raises(Fault, match="not JSON"):
        asyncio.run(http.call("GET", "/"))


def test_what_is_neither_host_nor_network_is_refused_with_its_name() -> None:
    hosts, networks = read_allowed(" Head.Internal , 10.0.0.0/8,fd00::/8, 127.0.0.1 ")
    assert hosts == {"head.internal"}
    assert [str(network) for network in networks] == ["10.0.0.0/8", "fd00::/8", "127.0.0.1/32"]
    for wrong in ("10.0.0.0/99", "http://a.org", "a b"):
        with pytest.raises(InputError) as refused:
            read_allowed(wrong)
        assert refused.value.code == "invalid_egress"


# Who else may open connections, and to what.
OTHERS = {
    "agent/remote/link.py": "runs on the rented machine",
    "cli/api_client.py": "runs at the person who types; the address is theirs",
    "cli/chat.py": "runs at the person who types; the address is theirs",
    "egress/": "the policy itself",
    "engine/": "runs in the job",
    "scripts/templates/": "examples for a person's own script",
    "server/accounts/mail.py": "the operator's mail server",
    "server/playground/": "the model server of a job, on this machine",
    "traincard/alerts.py": "runs in the job or at the person; the address is theirs",
    "traincard/sender.py": "runs in the job or at the person; the address is theirs",
    "storage/bundle.py": "text of a program for the rented machine",
}


def test_nothing_else_in_server_or_worker_opens_connections() -> None:
    opening = re.compile(
        r"^\s*(import|from) (urllib\.request|smtplib|requests|aiohttp)\b"
        r"|httpx2?\.(AsyncClient|Client|get|post|stream|request)\(|AsyncOAuth2Client\((?!\))",
        re.MULTILINE,
    )
    found = []
    for path in sorted((ROOT / "src/gpubloom").rglob("*.py")):
        name = path.relative_to(ROOT / "src/gpubloom").as_posix()
        text = path.read_text(encoding="utf-8")
        if not name.startswith(tuple(OTHERS)) and opening.search(text) and "gpubloom.egress" not in text:
            found.append(name)
    assert found == []


def _answer(*pieces: bytes, **headers: str) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return httpx2.Response(200, headers=headers, content=body())


def test_the_certificates_of_authorities_are_read_once_for_all_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = tls_context()
    monkeypatch.setattr(httpx2, "create_ssl_context", pytest.fail)
    with client(Policy()):
        assert tls_context() is first


def test_certificates_that_the_operator_names_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    with pytest.raises(FileNotFoundError):
        tls_context()


def test_a_compressed_answer_is_refused_before_it_is_unpacked() -> None:
    """Whoever reads answers of strangers (pictures, models' answers) reads them so."""
    bomb = gzip.compress(bytes(50 << 20))
    with pytest.raises(AnswerRefused, match="compressed"):
        asyncio.run(read_bounded(_answer(bomb, **{"Content-Encoding": "gzip"}), len(bomb) + 1))


def test_an_answer_is_read_up_to_its_limit() -> None:
    assert asyncio.run(read_bounded(_answer(b"four", b"four"), 8)) == b"fourfour"
    with pytest.raises(AnswerRefused, match="more than 7 bytes"):
        asyncio.run(read_bounded(_answer(b"four", b"four"), 7))
