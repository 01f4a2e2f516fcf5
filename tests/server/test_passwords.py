"""Forgotten, reset and changed passwords."""

from datetime import timedelta

import pytest

from gpubloom.server.accounts import passwords
from gpubloom.server.accounts.tables import BrowserSession, User
from gpubloom.server.audit import AuditEvent
from gpubloom.server.clock import now
from tests.server.installation import PASSWORD, PASSWORD_HASH, Installation, Server, link_secret

NEW = "another walk in that garden"


def test_a_forgotten_password_is_replaced_by_email_and_every_browser_signed_out(
    server: Server, installation: Installation, member: User
) -> None:
    signed_in = server.signed_in(member)
    server.stranger.post("/api/auth/password/forgot", json={"email": member.email})
    body = {"token": link_secret(installation.sent_emails()[-1]), "password": NEW}
    assert server.stranger.post("/api/auth/password/reset", json=body).status_code == 204
    assert signed_in.get("/api/me").status_code == 401
    assert installation.sent_emails()[-1]["Subject"] == "Your GPU Bloom password was changed"
    answer = server.stranger.post("/api/auth/sign-in", json={"email": member.email, "password": NEW})
    assert answer.status_code == 200
    assert installation.actions() == ["user.password_reset", "user.signed_in"]


def test_a_reset_link_works_once_and_expires(
    server: Server, installation: Installation, member: User
) -> None:
    token = installation.add_link("reset", member.email)
    late = installation.add_link("reset", member.email, expires=now() - timedelta(seconds=1))
    reset = "/api/auth/password/reset"
    assert server.stranger.post(reset, json={"token": token, "password": NEW}).status_code == 204
    again = server.stranger.post(reset, json={"token": token, "password": NEW})
    assert (again.status_code, again.json()["code"]) == (410, "link_used")
    expired = server.stranger.post(reset, json={"token": late, "password": NEW})
    assert (expired.status_code, expired.json()["code"]) == (410, "link_expired")


def test_a_refused_new_password_leaves_the_link_unspent(
    server: Server, installation: Installation, member: User
) -> None:
    token = installation.add_link("reset", member.email)
    body = {"token": token, "password": "short"}
    assert server.stranger.post("/api/auth/password/reset", json=body).status_code == 422
    assert server.stranger.post("/api/auth/password/reset", json={**body, "password": NEW}).status_code == 204


def test_a_disabled_account_gets_no_email_and_cannot_use_one(
    server: Server, installation: Installation
) -> None:
    user = installation.add_user("Eve", disabled=True)
    token = installation.add_link("reset", user.email)
    verify = installation.add_link("verify", user.email)
    server.stranger.post("/api/auth/password/forgot", json={"email": user.email})
    assert installation.sent_emails() == []
    body = {"token": token, "password": NEW}
    assert server.stranger.post("/api/auth/password/reset", json=body).status_code == 410
    assert (
        server.stranger.post("/api/auth/verify", json={"token": verify, "password": PASSWORD}).status_code
        == 410
    )
    assert installation.get(User, user.id).password_hash == PASSWORD_HASH


def test_changing_the_password_needs_the_old_one_and_signs_out_other_browsers(
    server: Server, installation: Installation, member: User
) -> None:
    here, there = server.signed_in(member), server.signed_in(member)
    wrong = here.post("/api/me/password", json={"current_password": "not this one", "new_password": NEW})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["code"] == "wrong_password"
    assert there.get("/api/me").status_code == 200
    right = here.post("/api/me/password", json={"current_password": PASSWORD, "new_password": NEW})
    assert right.status_code == 204
    assert here.get("/api/me").status_code == 200
    assert there.get("/api/me").status_code == 401
    assert len(installation.all(BrowserSession)) == 1
    assert installation.actions() == ["user.password_changed"]
    assert installation.sent_emails()[-1]["To"] == member.email


def test_a_new_password_ends_reset_links_sessions_and_api_tokens(
    server: Server, installation: Installation, member: User
) -> None:
    here, there, program = server.signed_in(member), server.signed_in(member), server.program(member)
    older = installation.add_link("reset", member.email)
    body = {"current_password": PASSWORD, "new_password": NEW}
    assert here.post("/api/me/password", json=body).status_code == 204
    assert there.get("/api/me").status_code == 401
    assert program.get("/api/me").status_code == 401
    late = server.stranger.post("/api/auth/password/reset", json={"token": older, "password": PASSWORD})
    assert (late.status_code, late.json()["code"]) == (410, "link_unknown")
    assert "API tokens were revoked" in installation.sent_emails()[-1].get_content()
    [event] = installation.all(AuditEvent)
    assert event.details == {"api_tokens_revoked": 1}


def test_a_reset_ends_other_reset_links_sessions_and_api_tokens(
    server: Server, installation: Installation, member: User
) -> None:
    browser, program = server.signed_in(member), server.program(member)
    first, second = (installation.add_link("reset", member.email) for _ in range(2))
    reset = "/api/auth/password/reset"
    assert server.stranger.post(reset, json={"token": second, "password": NEW}).status_code == 204
    assert browser.get("/api/me").status_code == 401
    assert program.get("/api/me").status_code == 401
    assert server.stranger.post(reset, json={"token": first, "password": PASSWORD}).status_code == 410


def test_api_tokens_can_be_kept_on_purpose(server: Server, installation: Installation, member: User) -> None:
    here, program = server.signed_in(member), server.program(member)
    body = {"current_password": PASSWORD, "new_password": NEW, "keep_tokens": True}
    assert here.post("/api/me/password", json=body).status_code == 204
    assert program.get("/api/me").status_code == 200
    token = installation.add_link("reset", member.email)
    reset = {"token": token, "password": PASSWORD, "keep_tokens": True}
    assert server.stranger.post("/api/auth/password/reset", json=reset).status_code == 204
    assert program.get("/api/me").status_code == 200
    assert here.get("/api/me").status_code == 401
    assert "API tokens" not in installation.sent_emails()[-1].get_content()


def test_somebody_elses_api_tokens_and_links_stay(
    server: Server, installation: Installation, member: User, admin: User
) -> None:
    program, token = server.program(admin), installation.add_link("reset", admin.email)
    body = {"current_password": PASSWORD, "new_password": NEW}
    assert server.signed_in(member).post("/api/me/password", json=body).status_code == 204
    assert program.get("/api/me").status_code == 200
    reset = {"token": token, "password": NEW}
    assert server.stranger.post("/api/auth/password/reset", json=reset).status_code == 204


def test_a_new_password_ends_links_that_confirm_the_address_and_sign_in(
    server: Server, installation: Installation, member: User
) -> None:
    token = installation.add_link("reset", member.email)
    confirming = installation.add_link("verify", member.email)
    body = {"token": token, "password": NEW}
    assert server.stranger.post("/api/auth/password/reset", json=body).status_code == 204
    assert (
        server.stranger.post("/api/auth/verify", json={"token": confirming, "password": NEW}).status_code
        == 410
    )


@pytest.mark.parametrize("fresh_hash", [None, "a hash of the old password"])
def test_a_password_that_changes_while_it_is_checked_signs_nobody_in(
    server: Server,
    installation: Installation,
    member: User,
    monkeypatch: pytest.MonkeyPatch,
    fresh_hash: str | None,
) -> None:
    async def checked(_password: str, _stored: str | None) -> tuple[bool, str | None]:
        # Its owner chooses a new one at this moment.
        installation.change(member, password_hash="the new hash")
        return True, fresh_hash

    monkeypatch.setattr(passwords, "check_password", checked)
    body = {"email": member.email, "password": PASSWORD}
    refused = server.stranger.post("/api/auth/sign-in", json=body)
    assert (refused.status_code, refused.json()["code"]) == (401, "wrong_credentials")
    assert installation.all(BrowserSession) == []
    assert installation.get(User, member.id).password_hash == "the new hash"
