"""Invitations: who may send them, who joins with them, and what ends them."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from gpubloom.server.accounts.tables import BrowserSession, OneTimeLink, User
from gpubloom.server.audit import AuditEvent
from gpubloom.server.clock import now
from gpubloom.server.db.migrate import downgrade, upgrade
from tests.server.installation import PASSWORD, Browser, Installation, Server, link_secret


def _invite(browser: Browser, email: str = "eve@example.org", role: str = "member") -> str:
    """Invite somebody; gives the secret of the link."""
    answer = browser.post("/api/invitations", json={"email": email, "role": role})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["link"].partition("#invite=")[2])


def _join(server: Server, secret: str, email: str = "eve@example.org") -> tuple[int, str]:
    body = {"name": "Eve", "email": email, "password": PASSWORD, "invitation": secret}
    answer = server.browser().post("/api/auth/sign-up", json=body)
    return answer.status_code, answer.json().get("code", "")


def test_an_invited_person_joins_although_sign_up_is_closed(
    server: Server, installation: Installation, admin: User
) -> None:
    invited = server.signed_in(admin).post(
        "/api/invitations", json={"email": "Eve@example.org", "role": "admin"}
    )
    assert invited.status_code == 201
    [mail] = installation.sent_emails()
    secret = link_secret(mail)
    assert invited.json()["link"].endswith(secret)
    assert secret not in installation.everything_stored()
    body = {"name": "Eve", "email": "eve@example.org", "password": PASSWORD, "invitation": secret}
    wrong = server.stranger.post("/api/auth/sign-up", json={**body, "email": "mallory@example.org"})
    assert (wrong.status_code, wrong.json()["code"]) == (410, "invitation_mismatch")
    joined = server.stranger.post("/api/auth/sign-up", json=body)
    assert joined.json()["verification_required"] is False
    again = server.stranger.post("/api/auth/sign-up", json=body)
    assert again.status_code == 410
    user = next(user for user in installation.all(User) if user.email == "eve@example.org")
    assert (user.role, user.email_verified is not None) == ("admin", True)
    assert installation.actions() == ["user.invited", "user.signed_up"]


def test_an_expired_invitation_is_refused(server: Server, installation: Installation, admin: User) -> None:
    secret = installation.add_link(
        "invite",
        "eve@example.org",
        role="member",
        inviter_id=admin.id,
        expires=now() - timedelta(seconds=1),
    )
    body = {"name": "Eve", "email": "eve@example.org", "password": PASSWORD, "invitation": secret}
    answer = server.stranger.post("/api/auth/sign-up", json=body)
    assert (answer.status_code, answer.json()["code"]) == (410, "link_expired")


def test_an_account_holder_is_not_invited(
    server: Server, installation: Installation, member: User, admin: User
) -> None:
    answer = server.signed_in(admin).post("/api/invitations", json={"email": member.email})
    assert answer.status_code == 422
    assert installation.all(OneTimeLink) == []


@pytest.mark.parametrize("squatted_first", [True, False])
def test_an_invitation_wins_over_a_strangers_sign_up_with_the_address(
    open_server: Server, installation: Installation, admin: User, squatted_first: bool
) -> None:
    def squat() -> None:
        body = {"name": "Mallory", "email": "eve@example.org", "password": "a password of a stranger"}
        assert open_server.browser().post("/api/auth/sign-up", json=body).status_code == 202

    if squatted_first:
        squat()
    secret = _invite(open_server.signed_in(admin), "eve@example.org", role="admin")
    if not squatted_first:
        squat()
    assert _join(open_server, secret) == (202, "")
    [eve] = [user for user in installation.all(User) if user.email == "eve@example.org"]
    assert (eve.name, eve.role, eve.email_verified is not None) == ("Eve", "admin", True)
    for password, status in (("a password of a stranger", 401), (PASSWORD, 200)):
        answer = open_server.browser().post(
            "/api/auth/sign-in", json={"email": "eve@example.org", "password": password}
        )
        assert answer.status_code == status
    # The link of the stranger's sign-up has nothing left to confirm.
    assert {link.purpose for link in installation.all(OneTimeLink) if link.used_at is None} == set()


def test_an_invitation_opens_no_account_that_is_confirmed_or_disabled(
    open_server: Server, installation: Installation, admin: User
) -> None:
    for name, fields in (("Ann", {"verified": True}), ("Bob", {"verified": False, "disabled": True})):
        email = f"{name.lower()}@example.org"
        secret = _invite(open_server.signed_in(admin), email, role="admin")
        assert installation.add_user(name, **fields).email == email
        assert _join(open_server, secret, email) == (409, "already_registered")
        refused = open_server.signed_in(admin).post("/api/invitations", json={"email": email})
        assert refused.status_code == 422
    assert [user.role for user in installation.all(User) if user.id != admin.id] == ["member", "member"]


def test_an_api_token_cannot_invite(server: Server, installation: Installation, admin: User) -> None:
    program = server.program(admin, "read", "write", "admin")
    answer = program.post("/api/invitations", json={"email": "eve@example.org", "role": "admin"})
    assert (answer.status_code, answer.json()["code"]) == (403, "session_required")
    assert installation.all(OneTimeLink) == []
    assert installation.sent_emails() == []


def test_an_invitation_needs_a_fresh_sign_in(server: Server, installation: Installation, admin: User) -> None:
    browser = server.signed_in(admin)
    [row] = installation.all(BrowserSession)
    installation.change(row, authenticated_at=now() - timedelta(minutes=11))
    answer = browser.post("/api/invitations", json={"email": "eve@example.org"})
    assert (answer.status_code, answer.json()["code"]) == (403, "fresh_sign_in_required")
    assert installation.all(OneTimeLink) == []


def test_open_invitations_are_listed_without_their_links(
    server: Server, installation: Installation, admin: User
) -> None:
    browser = server.signed_in(admin)
    used = _invite(browser, "used@example.org")
    assert _join(server, used, "used@example.org")[0] == 202
    installation.add_link("invite", "late@example.org", inviter_id=admin.id, expires=now())
    secret = _invite(browser, "eve@example.org", "admin")
    answer = browser.get("/api/invitations")
    [item] = answer.json()["items"]
    assert (item["email"], item["role"], item["inviter"]["email"]) == (
        "eve@example.org",
        "admin",
        admin.email,
    )
    assert secret not in answer.text


def test_a_newer_invitation_replaces_the_older(server: Server, admin: User) -> None:
    browser = server.signed_in(admin)
    older, newer = _invite(browser), _invite(browser)
    assert len(browser.get("/api/invitations").json()["items"]) == 1
    assert _join(server, older) == (410, "link_unknown")
    assert _join(server, newer)[0] == 202


def test_a_revoked_invitation_lets_nobody_in(server: Server, installation: Installation, admin: User) -> None:
    browser = server.signed_in(admin)
    secret = _invite(browser)
    [item] = browser.get("/api/invitations").json()["items"]
    assert browser.delete(f"/api/invitations/{item['id']}").status_code == 204
    assert browser.get("/api/invitations").json()["items"] == []
    assert _join(server, secret) == (410, "link_unknown")
    assert browser.delete(f"/api/invitations/{item['id']}").status_code == 404
    assert installation.actions() == ["user.invited", "user.invitation_revoked"]


def test_other_one_time_links_are_no_invitations(
    server: Server, installation: Installation, member: User, admin: User
) -> None:
    token = installation.add_link("reset", member.email)
    [link] = installation.all(OneTimeLink)
    browser = server.signed_in(admin)
    assert browser.get("/api/invitations").json()["items"] == []
    assert browser.delete(f"/api/invitations/{link.id}").status_code == 404
    reset = {"token": token, "password": "another walk in that garden"}
    assert server.stranger.post("/api/auth/password/reset", json=reset).status_code == 204


@pytest.mark.parametrize("change", [{"role": "member"}, {"disabled": True}])
def test_invitations_end_for_good_with_the_office_of_their_inviter(
    server: Server, installation: Installation, admin: User, change: dict[str, object]
) -> None:
    second = installation.add_user("Barbara", role="admin")
    secret = _invite(server.signed_in(second), role="admin")
    kept = _invite(server.signed_in(admin), "kept@example.org")
    boss, address = server.signed_in(admin), f"/api/users/{second.id}"
    assert boss.patch(address, json=change).status_code == 200
    assert _join(server, secret)[0] == 410
    assert boss.patch(address, json={"role": "admin", "disabled": False}).status_code == 200
    assert _join(server, secret)[0] == 410, "it does not come back with the office"
    assert [item["email"] for item in boss.get("/api/invitations").json()["items"]] == ["kept@example.org"]
    assert _join(server, kept, "kept@example.org")[0] == 202


@pytest.mark.parametrize("change", [{"role": "member"}, {"disabled": True}])
def test_an_invitation_that_was_under_way_while_its_inviter_lost_the_office_is_void(
    server: Server, installation: Installation, admin: User, change: dict[str, object]
) -> None:
    second = installation.add_user("Barbara", role="admin")
    secret = _invite(server.signed_in(second))
    # Past the server, as by a request that had passed the check a moment before.
    installation.change(second, **change)
    assert _join(server, secret) == (410, "invitation_void")
    assert server.signed_in(admin).get("/api/invitations").json()["items"] == []


def test_a_deleted_inviters_invitations_are_gone(
    server: Server, installation: Installation, admin: User
) -> None:
    second = installation.add_user("Barbara", role="admin")
    secret = _invite(server.signed_in(second))
    with installation.session() as session:
        session.delete(session.get_one(User, second.id))
    assert _join(server, secret)[0] == 410


def test_invitations_of_an_older_version_belong_to_who_the_audit_trail_names(
    empty_database: str, tmp_path: Path
) -> None:
    upgrade(empty_database)
    installation = Installation(tmp_path, empty_database)
    admin = installation.add_user("Grace", role="admin")
    for email in ("eve@example.org", "unknown@example.org"):
        installation.add_link("invite", email, role="member")
    for actor, age in ((uuid4(), 2), (admin.id, 1)):
        if actor != admin.id:
            installation.add_user("Earlier", id=actor)
        installation.add(
            AuditEvent(
                at=now() - timedelta(hours=age),
                actor_id=actor,
                action="user.invited",
                subject="email:eve@example.org",
            )
        )
    downgrade(empty_database, "0013")
    upgrade(empty_database)
    inviters = {link.identifier: link.inviter_id for link in installation.all(OneTimeLink)}
    assert inviters == {"eve@example.org": admin.id, "unknown@example.org": None}
