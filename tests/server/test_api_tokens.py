"""API tokens: shown once, limited in time and scope, and unable to make themselves permanent."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from gpubloom.server.accounts.schemas import NewApiToken
from gpubloom.server.accounts.tables import ApiToken, User
from gpubloom.server.clock import now
from tests.server.installation import Installation, Server

PROJECT = {"name": "Bloom", "modelArchitecture": "transformer", "modelSize": 1}


def test_a_token_is_shown_once_and_stored_as_a_fingerprint(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.signed_in(member)
    created = browser.post(
        "/api/me/tokens", json={"name": "laptop", "scopes": ["read"], "expires_in_days": 7}
    )
    assert created.status_code == 201
    token = created.json()["token"]
    [row] = installation.all(ApiToken)
    assert token not in installation.everything_stored()
    assert abs(row.expires_at - now() - timedelta(days=7)) < timedelta(minutes=1)
    listed = browser.get("/api/me/tokens")
    assert token not in listed.text
    assert listed.json()["items"][0]["prefix"] == token[:12]
    program = server.browser()
    assert program.get("/api/me", headers={"Authorization": f"Bearer {token}"}).json()["name"] == "Ada"
    assert browser.get("/api/me/tokens").json()["items"][0]["last_used_at"] is not None
    assert browser.delete(f"/api/me/tokens/{row.id}").status_code == 204
    revoked = program.get("/api/me", headers={"Authorization": f"Bearer {token}"})
    assert (revoked.status_code, revoked.json()["code"]) == (401, "invalid_api_token")
    assert installation.actions() == ["api_token.created", "api_token.revoked"]


def test_scopes_are_enforced(server: Server, member: User) -> None:
    reader, writer = server.program(member, "read"), server.program(member, "read", "write")
    refused = reader.post("/api/projects", json=PROJECT)
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert writer.post("/api/projects", json=PROJECT).status_code == 201
    assert reader.get("/api/projects").json()["total"] == 1
    only_writer = server.program(member, "write")
    assert only_writer.get("/api/projects").json()["code"] == "scope_missing"


def test_no_token_manages_the_account(server: Server, admin: User) -> None:
    program = server.program(admin, "read", "write", "admin")
    answers = [
        program.get("/api/me/tokens"),
        program.post("/api/me/tokens", json={"name": "more", "scopes": ["read"]}),
        program.get("/api/me/sessions"),
        program.delete("/api/me/sessions"),
        program.patch("/api/me", json={"name": "Mallory"}),
        program.post("/api/me/password", json={"current_password": "x" * 12, "new_password": "y z" * 6}),
        program.post("/api/auth/sign-out"),
    ]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "session_required")}


def test_an_expired_token_is_refused(server: Server, member: User) -> None:
    program = server.program(member, "read", expires_at=now() - timedelta(seconds=1))
    answer = program.get("/api/me")
    assert (answer.status_code, answer.json()["code"]) == (401, "expired_api_token")


def test_a_mistyped_token_is_refused(server: Server, installation: Installation, member: User) -> None:
    token, _ = installation.add_token(member)
    damaged = [
        token[:-1] + ("0" if token[-1] != "0" else "1"),
        token[:10] + ("a" if token[10] != "a" else "b") + token[11:],
        token + "0",
        token.removeprefix("bloom_"),
        "",
        "bloom_",
        "bloom_" + "\u00e9" * 54,
    ]
    for text in damaged:
        header = f"Bearer {text}".encode("latin-1")
        answer = server.stranger.get("/api/me", headers={"Authorization": header})
        assert (answer.status_code, answer.json()["code"]) == (401, "invalid_api_token"), text
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_wrong_token_is_not_rescued_by_a_cookie(server: Server, member: User) -> None:
    browser = server.signed_in(member)
    for value in ("Basic YTpi", "Bearer x", "Bearer", ""):
        assert browser.get("/api/me", headers={"Authorization": value}).status_code == 401


def test_only_an_admin_gets_a_token_with_admin_scope_and_loses_it_with_the_role(
    server: Server, installation: Installation, member: User, admin: User
) -> None:
    body = {"name": "all", "scopes": ["read", "write", "admin"]}
    assert server.signed_in(member).post("/api/me/tokens", json=body).status_code == 422
    assert server.signed_in(admin).post("/api/me/tokens", json=body).status_code == 201
    program = server.program(admin, "read", "admin")
    assert program.get("/api/users").status_code == 200
    installation.change(admin, role="member")
    assert program.get("/api/users").json()["code"] == "admin_required"
    assert program.get("/api/me").status_code == 200


def test_an_admins_token_without_admin_scope_sees_no_administration(server: Server, admin: User) -> None:
    assert server.program(admin, "read", "write").get("/api/users").status_code == 403


def test_there_is_a_most_of_tokens(server: Server, installation: Installation, member: User) -> None:
    with installation.session() as session:
        for number in range(50):
            fields = {"name": "x", "prefix": "x", "scopes": "read", "expires_at": now()}
            session.add(ApiToken(user_id=member.id, fingerprint=str(number), **fields))
    answer = server.signed_in(member).post("/api/me/tokens", json={"name": "one more", "scopes": ["read"]})
    assert answer.status_code == 409


@pytest.mark.parametrize(
    "change",
    [
        {"scopes": []},
        {"scopes": ["root"]},
        *({"expires_in_days": days} for days in (0, 366, "90", True, 1.5)),
        {"name": ""},
        {"more": 1},
    ],
)
def test_a_strange_token_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        NewApiToken.model_validate({"name": "laptop", "scopes": ["read"], **change})
