"""The audit trail: every action of a person leaves an event, and no event holds a secret."""

import json

import pytest
from pydantic import SecretStr

from gpubloom.server.accounts.tables import User
from gpubloom.server.audit import AuditEvent
from tests.server.installation import PASSWORD, Installation, Server, link_secret

NEW = "another walk in that garden"


def test_a_whole_story_is_told_without_a_secret(
    open_server: Server, installation: Installation, admin: User
) -> None:
    boss, eve = open_server.signed_in(admin), open_server.browser()
    secrets = [PASSWORD, NEW, boss.secret, boss.headers["X-CSRF-Token"]]

    eve.post("/api/auth/sign-up", json={"name": "Eve", "email": "eve@example.org", "password": PASSWORD})
    secrets.append(link_secret(installation.sent_emails()[-1]))
    verified = eve.post("/api/auth/verify", json={"token": secrets[-1], "password": PASSWORD})
    eve.headers["X-CSRF-Token"] = verified.json()["csrf_token"]
    secrets += [eve.secret, eve.headers["X-CSRF-Token"]]
    project = {"name": "Bloom", "modelArchitecture": "custom", "modelSize": 1}
    address = f"/api/projects/{eve.post('/api/projects', json=project).json()['id']}"
    eve.put(address, json={**project, "name": "Bloom 2"})
    eve.delete(address)
    token = eve.post("/api/me/tokens", json={"name": "laptop", "scopes": ["read"]}).json()
    secrets.append(token["token"])
    eve.delete(f"/api/me/tokens/{token['api_token']['id']}")
    eve.post("/api/me/password", json={"current_password": PASSWORD, "new_password": NEW})
    eve.patch("/api/me", json={"name": "Evelyn"})
    eve.delete("/api/me/sessions")
    eve.post("/api/auth/sign-out")
    eve.post("/api/auth/sign-in", json={"email": "eve@example.org", "password": "wrong wrong wrong"})
    boss.post("/api/invitations", json={"email": "joan@example.org"})
    secrets.append(link_secret(installation.sent_emails()[-1]))
    person = next(user for user in installation.all(User) if user.email == "eve@example.org")
    boss.patch(f"/api/users/{person.id}", json={"disabled": True})

    assert installation.actions() == [
        "user.signed_up",
        "user.email_verified",
        "user.signed_in",
        "project.created",
        "project.changed",
        "project.deleted",
        "api_token.created",
        "api_token.revoked",
        "user.password_changed",
        "user.profile_changed",
        "session.ended_others",
        "user.signed_out",
        "user.sign_in_failed",
        "user.invited",
        "user.changed",
    ]
    events = installation.all(AuditEvent)
    assert all(event.ip_address == "testclient" for event in events)
    assert {event.actor_id for event in events} == {admin.id, person.id}
    told = json.dumps([[event.subject, event.action, event.details] for event in events])
    assert all(isinstance(secret, str) and secret not in told for secret in secrets)


def test_admins_filter_the_log_by_user_action_project_and_time(
    server: Server, installation: Installation, admin: User, member: User
) -> None:
    boss, ada = server.signed_in(admin), server.signed_in(member)
    body = {"name": "Bloom", "modelArchitecture": "custom", "modelSize": 1}
    first, second = (ada.post("/api/projects", json=body).json()["id"] for _ in range(2))
    boss.post("/api/projects", json=body)
    ada.delete(f"/api/projects/{first}")
    ada.post("/api/auth/sign-out")

    def found(**wanted: object) -> list[str]:
        answer = boss.get("/api/audit-events", params=wanted)
        assert answer.status_code == 200, answer.text
        return [event["action"] for event in answer.json()["items"]][::-1]

    whole = ["project.created"] * 3 + ["project.deleted", "user.signed_out"]
    assert found() == whole
    assert found(actor_id=admin.id) == ["project.created"]
    assert found(project_id=first) == ["project.created", "project.deleted"]
    assert found(project_id=second, action="project.cre") == ["project.created"]
    for spelled in ("user.signed_out", "User signed", "user_signed", "user.signed"):
        assert found(action=spelled) == ["user.signed_out"]
    assert found(action="%") == found(action="signed") == []
    moment = boss.get("/api/audit-events?action=project.deleted").json()["items"][0]["at"]
    assert found(until=moment) == whole[:3]
    assert found(since=moment) == whole[3:]
    for wrong in ({"since": "yesterday"}, {"since": "0001-01-01T00:00:00+14:00"}, {"actor_id": "Ada"}):
        assert boss.get("/api/audit-events", params=wrong).status_code == 422


def test_every_refused_sign_in_is_recorded_with_its_reason(
    server: Server, installation: Installation, member: User
) -> None:
    installation.add_user("New", verified=False)
    installation.add_user("Gone", disabled=True)
    tries = [
        ("nobody@example.org", PASSWORD, 401),
        (member.email, "wrong wrong wrong", 401),
        ("gone@example.org", PASSWORD, 401),
        ("new@example.org", PASSWORD, 403),
    ]
    for email, password, status in tries:
        answer = server.stranger.post("/api/auth/sign-in", json={"email": email, "password": password})
        assert answer.status_code == status
    events = sorted(installation.all(AuditEvent), key=lambda event: event.sequence or 0)
    assert {event.action for event in events} == {"user.sign_in_failed"}
    assert [event.details["reason"] for event in events] == [
        *("wrong_credentials", "wrong_credentials", "disabled", "email_not_verified")
    ]


@pytest.mark.usefixtures("one_rate_window")
def test_sign_ins_beyond_the_limit_are_recorded_once_for_each_address(
    server: Server, installation: Installation, member: User
) -> None:
    for address in ("10.0.0.7", "10.0.0.8"):
        browser = server.browser(address=address)
        for email in (member.email, "nobody@example.org"):
            codes = [
                browser.post("/api/auth/sign-in", json={"email": email, "password": "wrong"}).status_code
                for _ in range(13)
            ]
            assert codes == [401] * 10 + [429] * 3
    limited = [each for each in installation.all(AuditEvent) if each.details.get("reason") == "rate_limited"]
    assert sorted(str(each.ip_address) for each in limited) == ["10.0.0.7", "10.0.0.8"]
    assert {each.action for each in limited} == {"user.sign_in_failed"}


def test_a_refused_sign_in_through_a_provider_is_recorded(installation: Installation, admin: User) -> None:
    with installation.serve(github_client_id="id", github_client_secret=SecretStr("secret")) as server:
        answer = server.stranger.get("/api/auth/oauth/github/callback?state=forged&code=x")
    assert answer.headers["location"] == "/auth?error=oauth_failed"
    [event] = installation.all(AuditEvent)
    assert (event.action, event.details) == (
        "user.sign_in_failed",
        {"provider": "github", "reason": "oauth_failed"},
    )
