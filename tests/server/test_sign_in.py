"""Signing in with a password, and the limits on guessing."""

import pytest
from argon2 import PasswordHasher

from gpubloom.server.accounts.tables import BrowserSession, User
from gpubloom.server.security.rates import RateCount
from tests.server.installation import PASSWORD, Installation, Server

WRONG = "not the password at all"


def test_the_right_password_signs_a_browser_in(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.stranger
    answer = browser.post("/api/auth/sign-in", json={"email": "ADA@example.org", "password": PASSWORD})
    assert answer.status_code == 200
    assert answer.json()["user"]["id"] == str(member.id)
    assert browser.get("/api/me").json()["name"] == "Ada"
    [row] = installation.all(BrowserSession)
    assert row.csrf_token == answer.json()["csrf_token"]
    assert browser.secret not in installation.everything_stored()
    assert installation.actions() == ["user.signed_in"]


def test_every_reason_not_to_sign_in_sounds_the_same(
    server: Server, installation: Installation, member: User
) -> None:
    installation.add_user("Disabled", disabled=True)
    installation.add_user("Elsewhere", password_hash=None)
    tries = [
        ("ada@example.org", WRONG),
        ("nobody@example.org", PASSWORD),
        ("disabled@example.org", PASSWORD),
        ("elsewhere@example.org", PASSWORD),
    ]
    answers = [
        server.browser().post("/api/auth/sign-in", json={"email": email, "password": password})
        for email, password in tries
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert not any("set-cookie" in answer.headers for answer in answers)
    assert installation.all(BrowserSession) == []
    assert installation.actions() == ["user.sign_in_failed"] * 4


def test_an_unconfirmed_address_is_told_so_only_with_the_right_password(
    server: Server, installation: Installation
) -> None:
    installation.add_user("Eve", verified=False)
    body = {"email": "eve@example.org", "password": PASSWORD}
    answer = server.stranger.post("/api/auth/sign-in", json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "email_not_verified")
    answer = server.stranger.post("/api/auth/sign-in", json={**body, "password": WRONG})
    assert (answer.status_code, answer.json()["code"]) == (401, "wrong_credentials")


@pytest.mark.usefixtures("one_rate_window")
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("addresses", "neighbour"),
    [
        ([f"2001:db8:1:2:{number:x}::1" for number in range(10)], "2001:db8:1:3::1"),
        (["10.1.2.3", "::ffff:10.1.2.3"] * 5, "::ffff:10.1.2.4"),
    ],
)
def test_guesses_from_one_network_count_together(
    server: Server, member: User, addresses: list[str], neighbour: str
) -> None:
    body = {"email": member.email, "password": WRONG}

    def sign_in(address: str) -> int:
        return server.browser(address=address).post("/api/auth/sign-in", json=body).status_code

    assert [sign_in(address) for address in addresses] == [401] * len(addresses)
    assert sign_in(addresses[0]) == sign_in(addresses[-1]) == 429
    assert sign_in(neighbour) == 401


@pytest.mark.usefixtures("one_rate_window")
def test_guessing_is_limited_across_all_servers_of_an_installation(
    server: Server, installation: Installation, member: User
) -> None:
    body = {"email": member.email, "password": WRONG}
    with installation.serve() as second:
        codes = [
            (server, second)[number % 2].browser().post("/api/auth/sign-in", json=body).status_code
            for number in range(10)
        ]
        refused = second.browser().post("/api/auth/sign-in", json={**body, "password": PASSWORD})
    assert codes == [401] * 10
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert 1 <= int(refused.headers["Retry-After"]) <= 15 * 60
    assert "Try again in" in refused.json()["detail"]
    other_address = server.browser(address="10.0.0.7")
    assert other_address.post("/api/auth/sign-in", json={**body, "password": PASSWORD}).status_code == 200, (
        "somebody else's guesses must not lock the owner out at once"
    )


def test_the_table_of_rates_names_nobody_and_forgets(
    server: Server, installation: Installation, member: User
) -> None:
    body = {"email": member.email, "password": WRONG}
    server.stranger.post("/api/auth/sign-in", json=body)
    with installation.session() as session:
        counts = list(session.query(RateCount))
        assert counts
        assert not any("ada" in count.key or "testclient" in count.key for count in counts)
        for count in counts:
            count.window -= 10**6
            count.expires = count.expires.replace(year=2020)
    server.stranger.post("/api/auth/sign-in", json=body)
    assert all(count.expires.year > 2020 for count in installation.all(RateCount))


@pytest.mark.usefixtures("one_rate_window")
def test_one_ip_address_cannot_try_to_sign_in_without_end(server: Server) -> None:
    codes = [
        server.stranger.post("/api/auth/verify", json={"token": "x", "password": "x"}).status_code
        for _ in range(61)
    ]
    assert codes == [410] * 60 + [429]
    other = server.browser(address="10.0.0.7")
    assert other.post("/api/auth/verify", json={"token": "x", "password": "x"}).status_code == 410


@pytest.mark.usefixtures("real_hashes")
def test_an_older_hash_is_replaced_at_sign_in(server: Server, installation: Installation) -> None:
    older = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    user = installation.add_user("Ada", password_hash=older)
    body = {"email": user.email, "password": PASSWORD}
    assert server.stranger.post("/api/auth/sign-in", json=body).status_code == 200
    assert "m=19456" in installation.get(User, user.id).password_hash


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/auth/sign-in", '{"email": "ada@example.org", "password": "%s"}'),
        ("/api/me/confirm", '{"password": "%s"}'),
        ("/api/me/password", '{"current_password": "%s", "new_password": "another walk"}'),
        ("/api/providers/modal/credentials", '{"values": {"token_id": "%s"}}'),
    ],
)
def test_a_secret_that_is_no_unicode_is_invalid_input(
    server: Server, member: User, path: str, body: str
) -> None:
    method = "PUT" if "providers" in path else "POST"
    headers = {"Content-Type": "application/json"}
    lone_surrogate = (body % "\\ud800").encode()
    answer = server.signed_in(member).request(method, path, content=lone_surrogate, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "invalid_text")
