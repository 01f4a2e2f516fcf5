"""Passkeys: adding, using and deleting them, and every way to present one that is refused."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpubloom.server.accounts.passkeys import Passkey, PasskeyChallenge, relying_party, unavailable
from gpubloom.server.accounts.reauthentication import FRESH_FOR
from gpubloom.server.accounts.recovery_codes import RecoveryCode
from gpubloom.server.accounts.tables import BrowserSession, PendingSignIn, User
from gpubloom.server.clock import now
from gpubloom.server.settings import Settings
from tests.server.authenticator import PRESENT, Authenticator
from tests.server.installation import PASSWORD, Browser, Installation, Server

ORIGIN = "https://bloom.example.org"
REFUSED = (403, "passkey_refused")


@pytest.fixture
def server(installation: Installation) -> Iterator[Server]:
    """A server at a host name: passkeys have no other sites."""
    with installation.serve(public_url=ORIGIN) as running:
        yield running


def add_passkey(browser: Browser, name: str = "laptop", **changes: Any) -> tuple[Authenticator, Any]:
    authenticator = Authenticator(**{"origin": ORIGIN, **changes})
    options = browser.post("/api/me/passkeys/options").json()["options"]
    body = {"name": name, "credential": authenticator.make(options)}
    return authenticator, browser.post("/api/me/passkeys", json=body)


def sign_in(browser: Browser, authenticator: Authenticator) -> Any:
    options = browser.post("/api/auth/passkey/options").json()["options"]
    return browser.post("/api/auth/passkey", json={"credential": authenticator.sign(options)})


def outcome(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_passkey_signs_in_without_a_password(
    server: Server, installation: Installation, member: User
) -> None:
    authenticator, added = add_passkey(server.signed_in(member))
    assert added.status_code == 201, added.text
    assert len(added.json()["recovery_codes"]) == 10
    assert added.json()["passkey"]["last_used_at"] is None
    browser = server.browser()
    options = browser.post("/api/auth/passkey/options").json()["options"]
    assert options["allowCredentials"] == [], "the browser asks which passkey to use"
    assert options["userVerification"] == "required"
    signed_in = browser.post("/api/auth/passkey", json={"credential": authenticator.sign(options)})
    assert signed_in.json()["user"]["id"] == str(member.id)
    assert browser.get("/api/me").status_code == 200
    [passkey] = browser.get("/api/me/factors").json()["passkeys"]
    assert passkey["last_used_at"] is not None
    assert installation.actions() == ["passkey.added", "user.signed_in"]
    assert installation.all(PendingSignIn) == []


def test_a_passkey_is_asked_for_after_the_password(
    server: Server, installation: Installation, member: User
) -> None:
    authenticator, added = add_passkey(server.signed_in(member))
    browser = server.browser()
    first = browser.post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    assert first.status_code == 202
    assert first.json() == {"second_factors": ["passkey", "recovery_code"]}
    options = browser.post("/api/auth/passkey/options").json()["options"]
    assert [each["id"] for each in options["allowCredentials"]] == [added_id(installation)]
    assert (
        browser.post("/api/auth/passkey", json={"credential": authenticator.sign(options)}).status_code == 200
    )
    assert added.status_code == 201


def added_id(installation: Installation) -> str:
    [row] = installation.all(Passkey)
    return row.credential_id


def test_the_passkey_of_another_person_does_not_finish_a_sign_in(
    server: Server, installation: Installation, member: User
) -> None:
    add_passkey(server.signed_in(member))
    eves, _ = add_passkey(server.signed_in(installation.add_user("Eve")))
    browser = server.browser()
    browser.post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    assert outcome(sign_in(browser, eves)) == (403, "passkey_unknown")


def test_a_challenge_is_answered_once_and_by_its_own_browser(
    server: Server, installation: Installation, member: User
) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    browser, other = server.browser(), server.browser()
    options = browser.post("/api/auth/passkey/options").json()["options"]
    other.post("/api/auth/passkey/options")
    answer = {"credential": authenticator.sign(options)}
    assert outcome(other.post("/api/auth/passkey", json=answer)) == REFUSED
    assert outcome(server.browser().post("/api/auth/passkey", json=answer)) == (410, "sign_in_expired")
    assert browser.post("/api/auth/passkey", json=answer).status_code == 200
    # Once more in a browser that is in the middle of a sign-in.
    browser.post("/api/auth/passkey/options")
    assert outcome(browser.post("/api/auth/passkey", json=answer)) == REFUSED


def test_a_wrong_answer_spends_the_challenge(server: Server, member: User) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    browser = server.browser()
    options = browser.post("/api/auth/passkey/options").json()["options"]
    other_site = Authenticator(
        "http://evil.example", credential_id=authenticator.credential_id, key=authenticator.key
    )
    assert (
        outcome(browser.post("/api/auth/passkey", json={"credential": other_site.sign(options)})) == REFUSED
    )
    right = browser.post("/api/auth/passkey", json={"credential": authenticator.sign(options)})
    assert outcome(right) == REFUSED


def test_a_challenge_expires(server: Server, installation: Installation, member: User) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    browser = server.browser()
    options = browser.post("/api/auth/passkey/options").json()["options"]
    with installation.session() as session:
        for challenge in session.query(PasskeyChallenge):
            challenge.expires = now() - timedelta(seconds=1)
    answer = browser.post("/api/auth/passkey", json={"credential": authenticator.sign(options)})
    assert outcome(answer) == REFUSED


@pytest.mark.parametrize(
    "lie",
    [
        {"origin": "https://bloom.example.org:9000"},
        {"origin": "http://bloom.example.org"},
        {"rp_id": "evil.example"},
        {"flags": PRESENT},
        {"flags": 0},
    ],
    ids=["another port", "another scheme", "another site", "not verified", "nobody there"],
)
def test_a_passkey_of_another_site_or_without_its_owner_is_refused(
    server: Server, installation: Installation, member: User, lie: dict[str, Any]
) -> None:
    browser = server.signed_in(member)
    assert outcome(add_passkey(browser, **lie)[1]) == REFUSED
    assert installation.all(Passkey) == []
    authenticator, _ = add_passkey(browser)
    for name, value in lie.items():
        setattr(authenticator, name, value)
    before = len(installation.all(BrowserSession))
    assert outcome(sign_in(server.browser(), authenticator)) == REFUSED
    assert len(installation.all(BrowserSession)) == before


def test_a_copied_passkey_is_noticed_by_its_count(
    server: Server, installation: Installation, member: User
) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    copy = Authenticator(ORIGIN, credential_id=authenticator.credential_id, key=authenticator.key)
    assert sign_in(server.browser(), authenticator).status_code == 200
    assert sign_in(server.browser(), authenticator).status_code == 200
    assert outcome(sign_in(server.browser(), copy)) == REFUSED
    [row] = installation.all(Passkey)
    assert row.sign_count == 2
    # Synced passkeys do not count.
    synced, _ = add_passkey(server.signed_in(member), name="phone")
    for _ in range(2):
        synced.sign_count = -1
        assert sign_in(server.browser(), synced).status_code == 200


def test_a_signature_of_another_key_is_refused(server: Server, member: User) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    forged = Authenticator(ORIGIN, credential_id=authenticator.credential_id)
    assert outcome(sign_in(server.browser(), forged)) == REFUSED


def test_an_unknown_passkey_is_told_so(server: Server, member: User) -> None:
    assert outcome(sign_in(server.browser(), Authenticator(ORIGIN))) == (403, "passkey_unknown")


@pytest.mark.parametrize("garbage", ["AAAA", "e30", "_w", "bnVsbA"])
def test_garbage_is_refused(server: Server, member: User, garbage: str) -> None:
    browser = server.signed_in(member)
    browser.post("/api/me/passkeys/options")
    response = {"clientDataJSON": garbage, "attestationObject": garbage}
    body = {"name": "x", "credential": {"id": garbage, "type": "public-key", "response": response}}
    assert outcome(browser.post("/api/me/passkeys", json=body)) == REFUSED
    authenticator, _ = add_passkey(browser)
    stranger = server.browser()
    options = stranger.post("/api/auth/passkey/options").json()["options"]
    for name in ("clientDataJSON", "authenticatorData", "signature"):
        credential = authenticator.sign(options)
        credential["response"][name] = garbage
        assert outcome(stranger.post("/api/auth/passkey", json={"credential": credential})) == REFUSED
        options = stranger.post("/api/auth/passkey/options").json()["options"]


def test_a_passkey_is_registered_once(server: Server, installation: Installation, member: User) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    thief = server.signed_in(installation.add_user("Eve"))
    _, again = add_passkey(thief, credential_id=authenticator.credential_id)
    assert outcome(again) == (409, "passkey_already_registered")
    assert len(installation.all(Passkey)) == 1


def test_passkeys_are_renamed_and_deleted(server: Server, installation: Installation, member: User) -> None:
    browser = server.signed_in(member)
    authenticator, added = add_passkey(browser)
    address = f"/api/me/passkeys/{added.json()['passkey']['id']}"
    assert browser.patch(address, json={"name": "Work laptop"}).json()["name"] == "Work laptop"
    options = browser.post("/api/me/passkeys/options").json()["options"]
    assert [each["id"] for each in options["excludeCredentials"]] == [added_id(installation)]
    assert browser.delete(address).status_code == 204
    assert outcome(sign_in(server.browser(), authenticator)) == (403, "passkey_unknown")
    assert installation.all(RecoveryCode) == [], "without a second factor nothing needs them"
    assert installation.actions() == ["passkey.added", "passkey.renamed", "passkey.deleted"]


def test_a_passkey_confirms_an_old_session(server: Server, installation: Installation, member: User) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    eves, _ = add_passkey(server.signed_in(installation.add_user("Eve")))
    secret, row = installation.add_session(member, authenticated_at=now() - FRESH_FOR - timedelta(seconds=1))
    browser = server.browser().signed_in_as(secret, row.csrf_token)
    assert browser.get("/api/me/confirm").json()["passkey"] is True
    token = {"name": "x", "scopes": ["read"]}
    for key, expected in ((eves, 403), (authenticator, 204)):
        assert browser.post("/api/me/tokens", json=token).status_code == 403
        options = browser.post("/api/me/confirm/passkey-options").json()["options"]
        body = {"credential": key.sign(options)}
        assert browser.post("/api/me/confirm", json=body).status_code == expected
    assert browser.post("/api/me/tokens", json=token).status_code == 201


def test_a_disabled_account_is_not_opened_by_its_passkey(
    server: Server, installation: Installation, member: User
) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    installation.change(member, disabled=True)
    assert sign_in(server.browser(), authenticator).status_code == 410
    assert server.browser().get("/api/me").status_code == 401


def test_the_number_of_passkeys_is_limited(server: Server, installation: Installation, member: User) -> None:
    for number in range(20):
        installation.add(
            Passkey(user_id=member.id, name="x", credential_id=str(number), public_key=b"", sign_count=0)
        )
    answer = server.signed_in(member).post("/api/me/passkeys/options")
    assert outcome(answer) == (409, "too_many_passkeys")


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://bloom.example.org", "https://bloom.example.org"),
        ("https://Bloom.example.org:443", "https://bloom.example.org"),
        ("https://bloom.example.org:8443", "https://bloom.example.org:8443"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://127.0.0.1:8000", None),
        ("https://[2001:db8::1]", None),
        ("http://bloom.example.org", None),
    ],
)
def test_the_address_of_the_server_decides_about_passkeys(address: str, origin: str | None) -> None:
    settings = Settings(_env_file=None, public_url=address)
    if origin is None:
        assert "BLOOM_PUBLIC_URL" in (unavailable(settings) or "")
    else:
        assert relying_party(settings).origin == origin


def test_a_server_at_an_ip_address_says_why_it_has_no_passkeys(
    installation: Installation, member: User
) -> None:
    with installation.serve() as server:
        browser = server.signed_in(member)
        assert "127.0.0.1" in browser.get("/api/me/factors").json()["passkeys_unavailable"]
        answers = [
            browser.post("/api/me/passkeys/options"),
            server.browser().post("/api/auth/passkey/options"),
        ]
    assert {outcome(answer) for answer in answers} == {(409, "passkeys_unavailable")}


def test_without_recovery_codes_left_a_password_alone_confirms_nothing(
    server: Server, installation: Installation, member: User
) -> None:
    authenticator, _ = add_passkey(server.signed_in(member))
    for code in installation.all(RecoveryCode):
        installation.change(code, used_at=now())
    browser = server.signed_in(member)
    methods = browser.get("/api/me/confirm").json()
    assert methods == {"password": False, "code": False, "passkey": True, "providers": []}
    refused = browser.post("/api/me/confirm", json={"password": PASSWORD})
    assert outcome(refused) == (403, "sign_in_again")
    options = browser.post("/api/me/confirm/passkey-options").json()["options"]
    confirmed = browser.post("/api/me/confirm", json={"credential": authenticator.sign(options)})
    assert confirmed.status_code == 204
