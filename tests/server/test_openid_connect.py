"""Signing in through OpenID Connect, against a provider that runs as a process of its own.

What a real provider never does (forged signatures, another nonce) comes from a second, hostile one.
"""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from gpubloom.server.accounts.tables import LinkedAccount, User
from gpubloom.server.settings import SettingsError, load_settings
from tests.errors import raises
from tests.openid_provider import openid_provider
from tests.ports import free_port
from tests.server.installation import Browser, Installation, Server

PEOPLE = [
    {"sub": "eve", "email": "eve@example.org", "email_verified": True, "name": "Eve"},
    {"sub": "ada", "email": "ada@example.org", "email_verified": True, "name": "Ada"},
    {"sub": "unconfirmed", "email": "grace@example.org", "email_verified": False},
]


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with openid_provider(*PEOPLE, require_nonce=True) as address:
        yield address


@contextmanager
def _serving(installation: Installation, issuer: str, **settings: Any) -> Iterator[Server]:
    client = {"oidc_client_id": "bloom", "oidc_client_secret": "a secret"}
    with installation.serve(**{"oidc_issuer": issuer, "signup": "open", **client, **settings}) as running:
        yield running


@pytest.fixture
def server(installation: Installation, admin: User, issuer: str) -> Iterator[Server]:
    with _serving(installation, issuer) as running:
        yield running


def _agree(link: str, person: str) -> dict[str, str]:
    """Open the provider's page as a person and agree; gives what the provider sends back."""
    answer = httpx2.post(link, data={"sub": person})
    assert answer.status_code == 302, answer.text
    return _query(answer.headers["location"])


def _query(link: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}


def _come_back(browser: Browser, answer: dict[str, str]) -> str:
    return str(browser.get("/api/auth/oauth/oidc/callback", params=answer).headers["location"])


def _through(browser: Browser, person: str) -> str:
    left = browser.get("/api/auth/oauth/oidc/start")
    return _come_back(browser, _agree(left.headers["location"], person))


def test_a_new_person_signs_up_and_comes_back_as_the_same(
    server: Server, installation: Installation, issuer: str
) -> None:
    assert server.stranger.get("/api/auth/state").json()["oauth_providers"] == ["oidc"]
    browser, again = server.browser(), server.browser()
    assert _through(browser, "eve") == "/dashboard"
    me = browser.get("/api/me").json()
    assert (me["email"], me["name"], me["role"]) == ("eve@example.org", "Eve", "member")
    assert _through(again, "eve") == "/dashboard"
    assert again.get("/api/me").json()["id"] == me["id"]
    [linked] = installation.all(LinkedAccount)
    assert linked.provider_account_id == f"{issuer} eve", "a subject means nothing without its issuer"


def test_the_request_carries_state_nonce_and_a_pkce_challenge(server: Server) -> None:
    browser = server.browser()
    query = _query(browser.get("/api/auth/oauth/oidc/start").headers["location"])
    assert {"state", "nonce", "code_challenge"} <= query.keys()
    assert query["code_challenge_method"] == "S256"
    assert query["redirect_uri"] == "http://127.0.0.1:8000/api/auth/oauth/oidc/callback"
    other = _query(browser.get("/api/auth/oauth/oidc/start").headers["location"])
    assert all(query[name] != other[name] for name in ("state", "nonce", "code_challenge"))


def test_an_existing_account_is_linked_only_by_its_signed_in_owner(
    server: Server, installation: Installation, member: User
) -> None:
    assert _through(server.browser(), "ada") == "/auth?error=oauth_link_required"
    assert installation.all(LinkedAccount) == []
    owner = server.signed_in(member)
    left = owner.post("/api/me/linked-accounts", json={"provider": "oidc"})
    assert _come_back(owner, _agree(left.json()["address"], "ada")) == "/settings?linked=oidc"
    browser = server.browser()
    assert _through(browser, "ada") == "/dashboard"
    assert browser.get("/api/me").json()["id"] == str(member.id)


def test_an_unconfirmed_address_there_makes_no_account(server: Server, installation: Installation) -> None:
    assert _through(server.browser(), "unconfirmed") == "/auth?error=oauth_email_unverified"
    assert len(installation.all(User)) == 1


def test_a_code_of_another_attempt_signs_nobody_in(server: Server, installation: Installation) -> None:
    """As when an attacker sends somebody a link with the attacker's own code."""
    attacker, victim = server.browser(), server.browser()
    code = _agree(attacker.get("/api/auth/oauth/oidc/start").headers["location"], "eve")["code"]
    state = _query(victim.get("/api/auth/oauth/oidc/start").headers["location"])["state"]
    assert _come_back(victim, {"state": state, "code": code}) == "/auth?error=oauth_failed", "another nonce"
    assert installation.all(LinkedAccount) == []


def test_an_answer_in_the_name_of_another_issuer_is_refused(server: Server) -> None:
    browser = server.browser()
    answer = _agree(browser.get("/api/auth/oauth/oidc/start").headers["location"], "eve")
    assert _come_back(browser, {**answer, "iss": "https://other.example"}) == "/auth?error=oauth_failed"


def test_a_cancelled_sign_in_says_so(server: Server) -> None:
    browser = server.browser()
    state = _query(browser.get("/api/auth/oauth/oidc/start").headers["location"])["state"]
    assert _come_back(browser, {"state": state, "error": "access_denied"}) == "/auth?error=oauth_denied"


def test_a_provider_that_is_away_leads_back_to_the_sign_in_page(
    installation: Installation, admin: User
) -> None:
    with _serving(installation, f"http://127.0.0.1:{free_port()}") as server:
        left = server.browser().get("/api/auth/oauth/oidc/start")
        assert (left.status_code, left.headers["location"]) == (303, "/auth?error=oauth_failed")
        linking = server.signed_in(admin).post("/api/me/linked-accounts", json={"provider": "oidc"})
        assert (linking.status_code, linking.json()["code"]) == (409, "oauth_failed")


@pytest.mark.parametrize(
    "issuer", ["http://id.example.org", "id.example.org", "https://", "ftp://127.0.0.1", "https://a.b/?x=1"]
)
def test_an_issuer_without_tls_is_refused(issuer: str) -> None:
    with raises(SettingsError, code="invalid_settings", match="BLOOM_OIDC_ISSUER"):
        load_settings(_env_file=None, oidc_issuer=issuer)


class HostileProvider:
    """A provider on the loopback address whose documents and id tokens a test can falsify."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.key = RSAKey.generate_key(2048, parameters={"kid": "1"})
        self.signing_key: Any = self.key
        self.published: list[Any] = [self.key]
        self.header = {"alg": "RS256", "kid": "1"}
        self.document: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.nonce = ""
        self.unsigned = False

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/jwks":
            return {"keys": [key.as_dict(private=key.key_type == "oct") for key in self.published]}
        if path == "/token":
            return {"access_token": "x", "token_type": "Bearer", "id_token": self._id_token()}
        if path == "/userinfo":
            return {"sub": "eve", "email": "eve@example.org", "email_verified": True}
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            **self.document,
        }

    def _id_token(self) -> str:
        moment = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "bloom",
            "sub": "eve",
            "iat": moment,
            "exp": moment + 300,
            "nonce": self.nonce,
            "email": "eve@example.org",
            "email_verified": True,
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.unsigned:
            parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
            return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
        return jwt.encode(self.header, claims, self.signing_key)


@pytest.fixture
def hostile() -> Iterator[HostileProvider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(provider.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    provider = HostileProvider(listening.server_address[1])
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def _sign_in_at(provider: HostileProvider, server: Server) -> str:
    browser = server.browser()
    left = browser.get("/api/auth/oauth/oidc/start").headers["location"]
    if not left.startswith(provider.issuer):
        return str(left)
    query = _query(left)
    provider.nonce = query["nonce"]
    return _come_back(browser, {"state": query["state"], "code": "good-code"})


@pytest.mark.long
def test_only_an_id_token_for_this_server_and_this_attempt_counts(
    installation: Installation, admin: User, hostile: HostileProvider
) -> None:
    past = int(time.time()) - 3600
    shared = OctKey.generate_key(256, parameters={"kid": "1"})
    forgeries: dict[str, dict[str, Any]] = {
        "another key": {"signing_key": RSAKey.generate_key(2048, parameters={"kid": "1"})},
        "no signature": {"unsigned": True},
        "a shared secret that everybody can read": {
            "published": [shared],
            "signing_key": shared,
            "header": {"alg": "HS256", "kid": "1"},
        },
        "another issuer": {"claims": {"iss": "https://other.example"}},
        "another client": {"claims": {"aud": "other"}},
        "another party of several": {"claims": {"aud": ["bloom", "other"], "azp": "other"}},
        "another attempt": {"claims": {"nonce": "other"}},
        "no nonce": {"claims": {"nonce": None}},
        "no subject": {"claims": {"sub": None}},
        "expired": {"claims": {"exp": past}},
        "without an end": {"claims": {"exp": None}},
        "issued in the future": {"claims": {"iat": int(time.time()) + 3600}},
        "another issuer in the document": {"document": {"issuer": "https://other.example"}},
        "a profile of somebody else": {
            "claims": {"sub": "admin", "email": None},
            "document": {"userinfo_endpoint": f"{hostile.issuer}/userinfo"},
        },
    }
    honest = dict(vars(hostile))
    with _serving(installation, hostile.issuer) as server:
        results = {}
        for name, changes in forgeries.items():
            vars(hostile).update({**honest, **changes})
            results[name] = _sign_in_at(hostile, server)
        assert results == dict.fromkeys(forgeries, "/auth?error=oauth_failed")
        assert installation.all(LinkedAccount) == []
        vars(hostile).update(honest)
        assert _sign_in_at(hostile, server) == "/dashboard"
