"""First run: the printed link makes one admin, once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from tests.server.installation import PASSWORD, Installation, Server


def _body(token: str, **changes: object) -> dict[str, object]:
    return {"token": token, "name": "Grace", "email": "Grace@Example.org", "password": PASSWORD, **changes}


@pytest.fixture
def token(installation: Installation) -> str:
    return installation.add_link("setup", "first-run")


def test_the_link_makes_a_verified_admin_and_signs_the_browser_in(
    server: Server, installation: Installation, token: str
) -> None:
    assert server.stranger.get("/api/auth/state").json()["setup_required"] is True
    answer = server.stranger.post("/api/auth/setup", json=_body(token))
    assert answer.status_code == 201
    assert answer.json()["user"] | {"role": "admin", "email": "grace@example.org"} == answer.json()["user"]
    state = server.stranger.get("/api/auth/state").json()
    assert state["setup_required"] is False
    assert state["user"]["email_verified"] is not None
    assert installation.actions() == ["user.first_admin"]


def test_the_link_works_once(server: Server, token: str) -> None:
    assert server.stranger.post("/api/auth/setup", json=_body(token)).status_code == 201
    again = server.browser().post("/api/auth/setup", json=_body(token, email="other@example.org"))
    assert (again.status_code, again.json()["code"]) == (409, "already_set_up")


def test_a_link_is_refused_once_somebody_has_an_account(server: Server, token: str, member: User) -> None:
    answer = server.stranger.post("/api/auth/setup", json=_body(token))
    assert (answer.status_code, answer.json()["code"]) == (409, "already_set_up")


def test_an_expired_link_is_refused(server: Server, installation: Installation) -> None:
    token = installation.add_link("setup", "first-run", expires=now() - timedelta(seconds=1))
    answer = server.stranger.post("/api/auth/setup", json=_body(token))
    assert (answer.status_code, answer.json()["code"]) == (410, "link_expired")
    assert installation.all(User) == []


@pytest.mark.parametrize("purpose", ["verify", "reset", "invite"])
def test_a_link_for_something_else_is_refused(
    server: Server, installation: Installation, purpose: str
) -> None:
    token = installation.add_link(purpose, "first-run")
    answer = server.stranger.post("/api/auth/setup", json=_body(token))
    assert (answer.status_code, answer.json()["code"]) == (410, "link_unknown")


def test_two_people_at_the_same_moment_make_one_admin(server: Server, installation: Installation) -> None:
    tokens = [installation.add_link("setup", f"first-run-{number}") for number in range(4)]

    def set_up(number: int) -> int:
        body = _body(tokens[number], email=f"person{number}@example.org")
        return server.browser().post("/api/auth/setup", json=body).status_code

    with ThreadPoolExecutor(4) as pool:
        codes = sorted(pool.map(set_up, range(4)))
    assert codes == [201, 409, 409, 409]
    assert [user.role for user in installation.all(User)] == ["admin"]


def test_a_refused_password_is_not_repeated_in_the_answer(server: Server, token: str) -> None:
    answer = server.stranger.post("/api/auth/setup", json=_body(token, password="password123"))
    assert answer.status_code == 422
    assert "common password" in answer.json()["detail"]
    assert "password123" not in answer.text


def test_nobody_can_sign_up_before_the_server_is_set_up(installation: Installation, token: str) -> None:
    """Otherwise a stranger's account would spend the link, and there would never be an admin."""
    with installation.serve(signup="open") as server:
        body = {"name": "Eve", "email": "eve@example.org", "password": PASSWORD}
        early = server.stranger.post("/api/auth/sign-up", json=body)
        assert (early.status_code, early.json()["code"]) == (403, "setup_required")
        assert server.stranger.post("/api/auth/setup", json=_body(token)).status_code == 201
        assert server.browser().post("/api/auth/sign-up", json=body).status_code == 202
