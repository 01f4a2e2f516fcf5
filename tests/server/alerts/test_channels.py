"""Alert channels: of one person, stored encrypted, never shown, and only to addresses that may be reached."""

from uuid import uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.alerts.tables import AlertChannel, AlertDelivery
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job
from tests.server.test_reauthentication import stale
from tests.webhook import Webhook

HOOK = "https://hooks.example.org/services/T0/B0/very-secret"


def test_a_channel_is_created_changed_and_deleted_but_its_address_never_comes_back(
    server: Server, installation: Installation, member: User
) -> None:
    ada = server.signed_in(member)
    body = {"kind": "webhook", "name": "Ops", "address": HOOK}
    made = ada.post("/api/alert-channels", json=body)
    assert made.status_code == 201, made.text
    channel = made.json()
    assert (channel["host"], channel["rules"]) == (
        "hooks.example.org",
        ["failed", "diverged", "stalled", "alert"],
    )
    assert len(channel["signing_secret"]) >= 32
    address = f"/api/alert-channels/{channel['id']}"
    changed = ada.patch(address, json={"rules": ["ended", "overfitting", "ended"], "enabled": False})
    assert (changed.json()["rules"], changed.json()["enabled"]) == (["ended", "overfitting"], False)
    moved = ada.patch(address, json={"address": "https://other.example.org/x"})
    assert moved.json()["host"] == "other.example.org"
    listed = ada.get("/api/alert-channels")
    [row] = installation.all(AlertChannel)
    stored = installation.everything_stored()
    for secret in ("very-secret", channel["signing_secret"], "other.example.org/x"):
        assert secret not in listed.text + changed.text + moved.text + stored
    assert {"overfitting", "gpu_out_of_memory", "failed"} <= {rule["name"] for rule in listed.json()["rules"]}
    assert row.sealed is not None
    assert ada.delete(address).status_code == 204
    assert ada.delete(address).status_code == 404
    actions = [entry for entry in installation.actions() if entry.startswith("alert_channel.")]
    assert actions == [
        "alert_channel.created",
        "alert_channel.changed",
        "alert_channel.changed",
        "alert_channel.deleted",
    ]


def test_nobody_else_sees_changes_or_tests_a_channel(
    server: Server, installation: Installation, member: User
) -> None:
    job = add_job(installation, member)
    ada, eve = server.signed_in(member), server.signed_in(installation.add_user("Eve"))
    project = {"project_id": str(job.project_id)}
    made = ada.post("/api/alert-channels", json={"kind": "email", "name": "Mail", **project})
    assert (made.status_code, made.json()["host"]) == (201, member.email)
    assert ada.get("/api/alert-channels").json()["items"] == []
    assert len(ada.get("/api/alert-channels", params=project).json()["items"]) == 1
    assert len(ada.get("/api/alert-channels", params={"all": True}).json()["items"]) == 1
    address = f"/api/alert-channels/{made.json()['id']}"
    assert eve.get("/api/alert-channels", params={"all": True}).json()["items"] == []
    assert eve.get("/api/alert-channels", params=project).status_code == 404
    assert eve.post("/api/alert-channels", json={"kind": "email", "name": "x", **project}).status_code == 404
    assert eve.patch(address, json={"name": "x"}).status_code == 404
    assert eve.post(f"{address}/test").status_code == 404
    assert eve.delete(address).status_code == 404
    assert installation.sent_emails() == []
    reader = server.program(member, "read")
    assert reader.get("/api/alert-channels").status_code == 200
    assert reader.post("/api/alert-channels", json={"kind": "email", "name": "x"}).status_code == 403


def test_another_address_needs_a_fresh_sign_in_and_no_token_can_set_one(
    server: Server, installation: Installation, member: User
) -> None:
    channel = server.signed_in(member).post(
        "/api/alert-channels", json={"kind": "slack", "name": "Ops", "address": HOOK}
    )
    address = f"/api/alert-channels/{channel.json()['id']}"
    old, _ = stale(server, installation, member)
    for asking, code in (
        (old, "fresh_sign_in_required"),
        (server.program(member, "read", "write"), "session_required"),
    ):
        refused = asking.patch(address, json={"address": "https://eve.example.org/"})
        assert (refused.status_code, refused.json()["code"]) == (403, code)
        assert asking.patch(address, json={"name": "Other"}).json()["host"] == "hooks.example.org"
        assert asking.post("/api/alert-channels", json={"kind": "email", "name": "x"}).status_code == 201


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "webhook", "name": "x"}, "address_missing"),
        ({"kind": "slack", "name": "x", "address": "http://example.org/hook"}, "egress_refused"),
        (
            {"kind": "slack", "name": "x", "address": "https://169.254.169.254/latest/meta-data"},
            "egress_refused",
        ),
        ({"kind": "webhook", "name": "x", "address": "https://10.0.0.7/"}, "egress_refused"),
        ({"kind": "webhook", "name": "x", "address": "https://[::ffff:10.0.0.1]/"}, "egress_refused"),
        ({"kind": "webhook", "name": "x", "address": "file:///etc/passwd"}, "egress_refused"),
        ({"kind": "email", "name": "x", "address": "eve@example.org"}, "address_not_allowed"),
        ({"kind": "email", "name": "x", "rules": ["boredom"]}, "unknown_alert_rule"),
    ],
)
def test_wrong_channels_are_refused(server: Server, member: User, body: dict[str, str], code: str) -> None:
    refused = server.signed_in(member).post("/api/alert-channels", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, code)


def test_the_test_button_says_whether_the_message_arrived(
    server: Server, installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, hook = server.signed_in(member), Webhook()
    made = ada.post("/api/alert-channels", json={"kind": "webhook", "name": "Ops", "address": hook.address})
    address = f"/api/alert-channels/{made.json()['id']}/test"
    assert ada.post(address).json() == {"delivered": True, "problem": None}
    assert hook.messages[0]["title"] == "This is a test"
    assert hook.signed_with(made.json()["signing_secret"]) == [True]
    hook.answers = [302, 404]
    assert ada.post(address).json()["problem"] == "The webhook answered 302."
    assert ada.post(address).json()["problem"] == "The webhook answered 404."
    assert len(hook.tried) == 3, "a redirect is not followed"
    # What was allowed when it was stored is checked again when it is used.
    monkeypatch.delenv("BLOOM_EGRESS_ALLOW")
    refused = ada.post(address).json()
    assert (refused["delivered"], "private or reserved" in refused["problem"]) == (False, True)
    assert len(hook.tried) == 3
    hook.close()
    mail = ada.post("/api/alert-channels", json={"kind": "email", "name": "Mail"}).json()
    assert ada.post(f"/api/alert-channels/{mail['id']}/test").json()["delivered"] is True
    [sent] = installation.sent_emails()
    assert (sent["To"], sent["Subject"]) == (member.email, "GPU Bloom: This is a test")


def test_a_name_that_resolves_to_a_private_address_is_refused_when_it_is_used(
    server: Server, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = server.signed_in(member)
    body = {"kind": "slack", "name": "x", "address": "https://localhost:1/hook"}
    made = ada.post("/api/alert-channels", json=body)
    assert made.status_code == 201
    monkeypatch.delenv("BLOOM_EGRESS_ALLOW")
    tried = ada.post(f"/api/alert-channels/{made.json()['id']}/test").json()
    assert "private or reserved" in tried["problem"]


def test_a_person_has_a_limited_number_of_channels_and_a_deleted_project_takes_its_own_along(
    server: Server, installation: Installation, member: User
) -> None:
    ada = server.signed_in(member)
    for _ in range(50):
        installation.add(
            AlertChannel(id=uuid4(), user_id=member.id, kind="email", name="c", rules=["failed"])
        )
    refused = ada.post("/api/alert-channels", json={"kind": "email", "name": "one more"})
    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_channels")
    assert installation.all(AlertDelivery) == []
