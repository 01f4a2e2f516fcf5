"""Connecting services: what is entered is tried, sealed, never given back, and everybody's own."""

from uuid import UUID

import pytest

from gpubloom.providers.cloud import Fault
from gpubloom.server.accounts.tables import User
from gpubloom.server.rentals.tables import ProviderCredential
from gpubloom.server.settings import SettingsError, load_settings
from gpubloom.storage import StorageSettings
from tests.errors import raises
from tests.server.installation import Browser, Installation, Server
from tests.worker.remote.toy_provider import KEY, ToyService


def _toy(browser: Browser) -> dict[str, object]:
    items = browser.get("/api/providers").json()["items"]
    found: dict[str, object] = next(item for item in items if item["name"] == "toy")
    return found


@pytest.mark.long
def test_credentials_are_tried_sealed_and_never_given_back(
    renting: Server, installation: Installation, member: User
) -> None:
    ada, eve = renting.signed_in(member), renting.signed_in(installation.add_user("Eve"))
    assert _toy(ada)["connected"] is False
    stored = ada.put("/api/providers/toy/credentials", json={"values": {"key": f" {KEY} "}})
    assert (stored.status_code, stored.json()["account"]) == (200, "toy@example.com")
    assert _toy(ada)["connected"] is True
    assert _toy(eve)["connected"] is False
    assert KEY not in installation.everything_stored()
    assert KEY not in ada.get("/api/providers").text + stored.text
    assert "provider_credential.stored" in installation.actions()
    # Another person's row does not open what was sealed for the first.
    [row] = installation.all(ProviderCredential)
    installation.add(ProviderCredential(user_id=_id_of(eve), provider="toy", sealed=row.sealed))
    moved = eve.post("/api/providers/toy/check")
    assert (moved.status_code, moved.json()["code"]) == (409, "provider_unavailable")
    assert ada.delete("/api/providers/toy/credentials").status_code == 204
    assert _toy(ada)["connected"] is False


def _id_of(browser: Browser) -> UUID:
    return UUID(browser.get("/api/me").json()["id"])


def test_a_wrong_key_is_refused_with_the_services_own_sentence_and_not_kept(
    renting: Server, installation: Installation, member: User, service: ToyService
) -> None:
    ada = renting.signed_in(member)
    wrong = ada.put("/api/providers/toy/credentials", json={"values": {"key": "another"}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_credentials")
    assert wrong.json()["detail"] == "The toy service does not know this key."
    service.faults["check"] = [Fault("unavailable", "The toy service is being repaired.")]
    away = ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    assert (away.status_code, away.json()["detail"]) == (409, "The toy service is being repaired.")
    for values in ({}, {"key": KEY, "colour": "blue"}, {"key": "kéy"}):
        assert ada.put("/api/providers/toy/credentials", json={"values": values}).status_code == 422
    assert installation.all(ProviderCredential) == []
    assert ada.put("/api/providers/nobody/credentials", json={"values": {}}).status_code == 404


def test_revoked_credentials_are_noticed_and_stay_until_they_are_replaced(
    renting: Server, member: User, service: ToyService
) -> None:
    ada = renting.signed_in(member)
    ada.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    service.keys = {"a new one"}
    assert ada.post("/api/providers/toy/check").json()["problem"] == "The toy service does not know this key."
    assert _toy(ada)["connected"] is True
    again = ada.put("/api/providers/toy/credentials", json={"values": {"key": "a new one"}})
    assert again.json()["problem"] is None


def test_a_token_cannot_replace_credentials(renting: Server, member: User) -> None:
    program = renting.program(member, "read", "write")
    answer = program.put("/api/providers/toy/credentials", json={"values": {"key": KEY}})
    assert answer.status_code == 403


def test_a_bucket_without_its_key_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(_env_file=None).storage is None
    monkeypatch.setenv("BLOOM_STORAGE_BUCKET", "runs")
    with raises(SettingsError, code="invalid_settings", match="BLOOM_STORAGE_BUCKET.*BLOOM_STORAGE_KEY"):
        load_settings(_env_file=None)
    monkeypatch.setenv("BLOOM_STORAGE_KEY", "k")
    monkeypatch.setenv("BLOOM_STORAGE_SECRET", "hidden")
    settings = load_settings(_env_file=None)
    assert settings.storage == StorageSettings("runs", "k", "hidden")
    assert "hidden" not in repr(settings) + repr(settings.storage)
