"""What admins decide, and what nobody else may."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from pydantic import ValidationError

from gpubloom.server.accounts.tables import BrowserSession, User
from gpubloom.server.administration.schemas import PersonChange
from gpubloom.server.audit import AuditEvent
from gpubloom.server.clock import now
from tests.server.installation import Installation, Server


def test_members_are_refused(server: Server, member: User, admin: User) -> None:
    browser = server.signed_in(member)
    answers = [
        browser.get("/api/users"),
        browser.patch(f"/api/users/{member.id}", json={"role": "admin"}),
        browser.patch(f"/api/users/{admin.id}", json={"disabled": True}),
        browser.post("/api/invitations", json={"email": "eve@example.org"}),
        browser.get("/api/invitations"),
        browser.delete(f"/api/invitations/{member.id}"),
        browser.get("/api/audit-events"),
    ]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "admin_required")}


def test_an_admin_sees_everybody(server: Server, member: User, admin: User) -> None:
    people = server.signed_in(admin).get("/api/users").json()["items"]
    assert {person["email"]: person["role"] for person in people} == {
        member.email: "member",
        admin.email: "admin",
    }
    assert "password" not in str(people).lower()


def test_a_disabled_person_loses_browsers_and_programs_at_once(
    server: Server, installation: Installation, member: User, admin: User
) -> None:
    browser, program = server.signed_in(member), server.program(member)
    boss = server.signed_in(admin)
    assert boss.patch(f"/api/users/{member.id}", json={"disabled": True}).status_code == 200
    assert browser.get("/api/me").status_code == 401
    assert program.get("/api/me").status_code == 401
    assert boss.patch(f"/api/users/{member.id}", json={"disabled": False}).status_code == 200
    assert browser.get("/api/me").status_code == 401, "the old session does not come back"
    assert len(installation.all(BrowserSession)) == 1
    assert installation.actions() == ["user.changed", "user.changed"]


def test_a_demoted_admin_loses_the_office_at_once(server: Server, installation: Installation) -> None:
    first, second = (installation.add_user(name, role="admin") for name in ("Grace", "Barbara"))
    demoted = server.signed_in(second)
    assert demoted.get("/api/users").status_code == 200
    assert (
        server.signed_in(first).patch(f"/api/users/{second.id}", json={"role": "member"}).status_code == 200
    )
    assert demoted.get("/api/users").status_code == 403


@pytest.mark.parametrize("change", [{"role": "member"}, {"disabled": True}])
def test_the_last_admin_stays(
    server: Server, installation: Installation, admin: User, change: dict[str, object]
) -> None:
    installation.add_user("Away", role="admin", disabled=True)
    answer = server.signed_in(admin).patch(f"/api/users/{admin.id}", json=change)
    assert (answer.status_code, answer.json()["code"]) == (409, "last_admin")


def test_two_admins_cannot_demote_each_other_at_the_same_moment(
    server: Server, installation: Installation
) -> None:
    first, second = (installation.add_user(name, role="admin") for name in ("Grace", "Barbara"))
    pairs = [(server.signed_in(first), second), (server.signed_in(second), first)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: pair[0].patch(f"/api/users/{pair[1].id}", json={"role": "member"}), pairs))
    assert [user.role for user in installation.all(User)].count("admin") >= 1


@pytest.mark.parametrize("change", [{"role": "root"}, {"disabled": "yes"}, {"disabled": 1}, {"name": "Eve"}])
def test_a_strange_change_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PersonChange.model_validate(change)


def test_the_audit_trail_is_read_newest_first_and_page_by_page(
    server: Server, installation: Installation, admin: User
) -> None:
    moment = now()
    for number in range(7):
        # Several events may bear the same time.
        installation.add(
            AuditEvent(
                at=moment + timedelta(seconds=number // 3),
                actor_id=admin.id,
                action=f"test.{number}",
                subject="x",
            )
        )
    browser = server.signed_in(admin)
    pages = [
        browser.get("/api/audit-events", params={"limit": 3, "offset": offset}).json() for offset in (0, 3, 6)
    ]
    assert {page["total"] for page in pages} == {7}
    seen = [item["action"] for page in pages for item in page["items"]]
    assert sorted(seen) == [f"test.{number}" for number in range(7)]
    assert seen[0] == "test.6"
    assert browser.get("/api/audit-events").json()["items"][0]["actor"]["email"] == admin.email


def test_the_trail_outlives_its_actor(
    server: Server, installation: Installation, member: User, admin: User
) -> None:
    installation.add(AuditEvent(actor_id=member.id, action="test", subject="x"))
    with installation.session() as session:
        session.delete(session.get_one(User, member.id))
    [event] = server.signed_in(admin).get("/api/audit-events").json()["items"]
    assert event["actor"] is None
