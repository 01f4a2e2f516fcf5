"""Actions that could make a stolen session permanent need a sign-in of the last ten minutes."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pyotp
import pytest

from gpubloom.server.accounts.reauthentication import FRESH_FOR
from gpubloom.server.accounts.tables import BrowserSession, LinkedAccount, User
from gpubloom.server.clock import now
from tests.server.installation import PASSWORD, Browser, Installation, Server

NEW = "another walk in a louder garden"
# Method, path and body of everything that asks for a fresh sign-in.
GUARDED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "API token": ("POST", "/api/me/tokens", {"name": "laptop", "scopes": ["read"]}),
    "password": ("POST", "/api/me/password", {"current_password": PASSWORD, "new_password": NEW}),
    "hub token": ("PUT", "/api/me/hub-token", {"token": "hf_verysecret"}),
    "secret": ("PUT", "/api/secrets/HF_TOKEN", {"value": "hf_verysecret"}),
    "webhook": (
        "POST",
        "/api/alert-channels",
        {"kind": "webhook", "name": "x", "address": "https://hooks.example.org/x"},
    ),
    "bucket": ("PUT", "/api/storage-bucket", {"bucket": "b", "secret_key": "s", "endpoint": "ftp://x"}),
    "no bucket": ("DELETE", "/api/storage-bucket", {}),
    "provider": ("PUT", "/api/providers/modal/credentials", {"values": {}}),
    "authenticator app": ("POST", "/api/me/totp", {}),
    "its first code": ("POST", "/api/me/totp/enable", {"code": "000000"}),
    "no authenticator app": ("DELETE", "/api/me/totp", {}),
    "recovery codes": ("POST", "/api/me/recovery-codes", {}),
    "options of a passkey": ("POST", "/api/me/passkeys/options", {}),
    "passkey": (
        "POST",
        "/api/me/passkeys",
        {
            "name": "x",
            "credential": {
                "id": "x",
                "type": "public-key",
                "response": {"clientDataJSON": "x", "attestationObject": "x"},
            },
        },
    ),
    "no passkey": ("DELETE", "/api/me/passkeys/{id}", {}),
    "role": ("PATCH", "/api/users/{id}", {"role": "admin"}),
    "disabling": ("PATCH", "/api/users/{id}", {"disabled": True}),
}


def stale(server: Server, installation: Installation, user: User) -> tuple[Browser, UUID]:
    """A browser whose owner signed in longer ago than is fresh, and its session."""
    long_ago = now() - FRESH_FOR - timedelta(seconds=1)
    secret, row = installation.add_session(user, authenticated_at=long_ago)
    return server.browser().signed_in_as(secret, row.csrf_token), row.id


def _send(browser: Browser, name: str, member: User) -> Any:
    method, path, body = GUARDED[name]
    return browser.request(method, path.format(id=member.id), json=body)


@pytest.mark.long
@pytest.mark.parametrize("name", GUARDED)
def test_an_old_sign_in_must_be_confirmed(
    server: Server, installation: Installation, admin: User, member: User, name: str
) -> None:
    browser, _ = stale(server, installation, admin)
    before = installation.everything_stored()
    answer = _send(browser, name, member)
    assert (answer.status_code, answer.json()["code"]) == (403, "fresh_sign_in_required")
    assert installation.everything_stored() == before
    assert "fresh_sign_in_required" not in _send(server.signed_in(admin), name, member).text


@pytest.mark.parametrize("name", GUARDED)
def test_no_api_token_is_fresh_enough(server: Server, admin: User, member: User, name: str) -> None:
    answer = _send(server.program(admin, "read", "write", "admin"), name, member)
    assert (answer.status_code, answer.json()["code"]) == (403, "session_required")


def test_using_a_session_does_not_make_it_fresh(
    server: Server, installation: Installation, member: User
) -> None:
    browser, session_id = stale(server, installation, member)
    before = installation.get(BrowserSession, session_id)
    assert before is not None
    assert browser.get("/api/me").status_code == 200
    after = installation.get(BrowserSession, session_id)
    assert after is not None
    assert after.authenticated_at == before.authenticated_at
    assert browser.post("/api/me/tokens", json={"name": "x", "scopes": ["read"]}).status_code == 403


def test_a_sign_in_of_the_future_is_not_fresh(
    server: Server, installation: Installation, member: User
) -> None:
    """The clock was ahead at the sign-in, and was set right since."""
    secret, row = installation.add_session(member, authenticated_at=now() + timedelta(days=1))
    browser = server.browser().signed_in_as(secret, row.csrf_token)
    answer = _send(browser, "API token", member)
    assert (answer.status_code, answer.json()["code"]) == (403, "fresh_sign_in_required")


def test_a_session_of_unknown_age_is_not_fresh(
    server: Server, installation: Installation, member: User
) -> None:
    secret, row = installation.add_session(member)
    installation.change(row, authenticated_at=None)
    browser = server.browser().signed_in_as(secret, row.csrf_token)
    answer = browser.post("/api/me/tokens", json={"name": "x", "scopes": ["read"]})
    assert answer.json()["code"] == "fresh_sign_in_required"


def _confirm(browser: Browser, **body: str) -> tuple[int, str | None]:
    answer = browser.post("/api/me/confirm", json=body)
    if answer.status_code == 204:
        return 204, None
    problem = answer.json()
    return answer.status_code, problem["errors"][0]["code"] if problem["errors"] else problem["code"]


def test_the_password_makes_a_session_fresh_again(
    server: Server, installation: Installation, member: User
) -> None:
    browser, _ = stale(server, installation, member)
    assert browser.get("/api/me/confirm").json() == {
        "password": True,
        "code": False,
        "passkey": False,
        "providers": [],
    }
    assert _confirm(browser) == (422, "wrong_password")
    assert _confirm(browser, password="not the password") == (422, "wrong_password")
    token = {"name": "x", "scopes": ["read"]}
    assert browser.post("/api/me/tokens", json=token).status_code == 403
    assert _confirm(browser, password=PASSWORD) == (204, None)
    assert browser.post("/api/me/tokens", json=token).status_code == 201
    assert installation.actions()[:3] == ["session.confirm_failed"] * 2 + ["session.confirmed"]
    other, _ = stale(server, installation, member)
    assert other.post("/api/me/tokens", json=token).status_code == 403, "only the confirmed browser is fresh"


def test_with_an_app_the_password_alone_confirms_nothing(
    server: Server, installation: Installation, member: User
) -> None:
    at_home = server.signed_in(member)
    totp = pyotp.TOTP(at_home.post("/api/me/totp").json()["secret"])
    enabled = at_home.post("/api/me/totp/enable", json={"code": totp.now()})
    [paper, other, *_] = enabled.json()["recovery_codes"]
    browser, _ = stale(server, installation, member)
    assert browser.get("/api/me/confirm").json()["code"] is True
    assert _confirm(browser, password=PASSWORD) == (422, "wrong_code")
    assert _confirm(browser, code=paper) == (422, "wrong_password")
    assert _confirm(browser, password=PASSWORD, code=paper) == (204, None)
    assert _confirm(browser, password=PASSWORD, code=paper) == (422, "wrong_code")
    # Who signs in with GitHub only has no password to add.
    installation.change(member, password_hash=None)
    assert _confirm(browser, code=other) == (204, None)


def test_a_person_without_password_and_factor_signs_in_again(
    server: Server, installation: Installation
) -> None:
    user = installation.add_user("Eve", password_hash=None)
    installation.add(LinkedAccount(user_id=user.id, provider="github", provider_account_id="1"))
    browser, _ = stale(server, installation, user)
    assert browser.get("/api/me/confirm").json()["providers"] == ["github"]
    assert _confirm(browser, password="") == (403, "sign_in_again")


def test_an_api_token_confirms_nothing(server: Server, member: User) -> None:
    answer = server.program(member).post("/api/me/confirm", json={"password": PASSWORD})
    assert (answer.status_code, answer.json()["code"]) == (403, "session_required")


@pytest.mark.usefixtures("one_rate_window")
def test_guessing_with_a_stolen_session_is_limited_and_stops_nobody_else(
    server: Server, installation: Installation, member: User
) -> None:
    thief, _ = stale(server, installation, member)
    tries = [_confirm(thief, password="not the password")[0] for _ in range(10)]
    assert tries == [422] * 10
    assert _confirm(thief, password=PASSWORD) == (429, "too_many_requests")
    owner, _ = stale(server, installation, member)
    assert _confirm(owner, password=PASSWORD) == (204, None)
