"""Actions that could make a stolen session permanent need a sign-in of the last ten minutes."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from gpubloom.server.accounts.reauthentication import FRESH_FOR
from gpubloom.server.accounts.tables import BrowserSession, User
from gpubloom.server.clock import now
from tests.server.installation import PASSWORD, Browser, Installation, Server

NEW = "another walk in a louder garden"
# Method, path and body of everything that asks for a fresh sign-in.
GUARDED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "API token": ("POST", "/api/me/tokens", {"name": "laptop", "scopes": ["read"]}),
    "password": ("POST", "/api/me/password", {"current_password": PASSWORD, "new_password": NEW}),
    "hub token": ("PUT", "/api/me/hub-token", {"token": "hf_verysecret"}),
    "provider": ("PUT", "/api/providers/modal/credentials", {"values": {}}),
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


def test_a_session_of_unknown_age_is_not_fresh(
    server: Server, installation: Installation, member: User
) -> None:
    secret, row = installation.add_session(member)
    installation.change(row, authenticated_at=None)
    browser = server.browser().signed_in_as(secret, row.csrf_token)
    answer = browser.post("/api/me/tokens", json={"name": "x", "scopes": ["read"]})
    assert answer.json()["code"] == "fresh_sign_in_required"
