"""Nobody can lock another person out, and guessing passwords is limited all the same."""

import pytest

from gpubloom.server.accounts import passwords
from gpubloom.server.accounts.tables import KnownDevice, User
from tests.server.installation import PASSWORD, Browser, Installation, Server, link_secret

WRONG = "not the password at all"


def _sign_in(browser: Browser, user: User, password: str = PASSWORD) -> int:
    return browser.post("/api/auth/sign-in", json={"email": user.email, "password": password}).status_code


@pytest.fixture
def slowed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each try that was slowed down; 15 tries on one account are many."""
    slow: list[bool] = []

    async def slow_down() -> None:
        slow.append(True)

    monkeypatch.setattr(passwords, "_slow_down", slow_down)
    monkeypatch.setattr(passwords._ACCOUNT, "limit", 15)
    return slow


@pytest.mark.usefixtures("one_rate_window")
def test_guesses_from_many_addresses_are_slowed_down_but_never_refuse_the_owner(
    server: Server, member: User, slowed: list[bool]
) -> None:
    strangers = [server.browser(address=f"10.0.0.{number}") for number in range(4)]
    codes = [_sign_in(stranger, member, WRONG) for stranger in strangers for _ in range(12)]
    assert codes == ([401] * 10 + [429] * 2) * 4
    assert len(slowed) == 25, "tries that are refused anyway do not count against the account"
    assert _sign_in(server.browser(address="10.0.0.99"), member) == 200, "the owner, with a new browser"


@pytest.mark.usefixtures("one_rate_window")
def test_a_stranger_at_the_same_address_does_not_lock_a_known_browser_out(
    server: Server, installation: Installation, member: User, slowed: list[bool]
) -> None:
    owner, stranger = server.browser(), server.browser()
    assert _sign_in(owner, member) == 200
    owner.headers["X-CSRF-Token"] = owner.get("/api/auth/state").json()["csrf_token"]
    assert owner.post("/api/auth/sign-out").status_code == 204
    for _ in range(61):
        last = _sign_in(stranger, member, WRONG)
        stranger.post("/api/auth/verify", json={"token": "x", "password": "x"})
    assert last == 429
    assert _sign_in(stranger, member) == 429, "this browser never signed in here"
    already_slowed = len(slowed)
    assert _sign_in(owner, member) == 200
    assert len(slowed) == already_slowed
    assert len(installation.all(KnownDevice)) == 1


@pytest.mark.usefixtures("one_rate_window")
def test_a_known_browser_cannot_guess_without_end(server: Server, member: User) -> None:
    browser = server.browser()
    assert _sign_in(browser, member) == 200
    assert [_sign_in(browser, member, WRONG) for _ in range(11)] == [401] * 10 + [429]


@pytest.mark.usefixtures("one_rate_window")
def test_a_browser_is_known_to_one_account_only(server: Server, member: User, admin: User) -> None:
    browser = server.browser()
    assert _sign_in(browser, member) == 200
    assert [_sign_in(server.browser(), admin, WRONG) for _ in range(10)] == [401] * 10
    assert _sign_in(browser, admin) == 429, "known to Ada's account does not mean known to Grace's"


def test_the_device_cookie_signs_nobody_in_and_is_stored_as_a_fingerprint(
    server: Server, installation: Installation, member: User
) -> None:
    browser = server.browser()
    browser.cookies.set("bloom_device", "planted", domain="127.0.0.1", path="/")
    answer = browser.post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    cookies = [header for header in answer.headers.get_list("set-cookie") if "bloom_device" in header]
    assert len(cookies) == 1
    assert "HttpOnly" in cookies[0]
    secret = cookies[0].partition("=")[2].partition(";")[0]
    assert secret != "planted"
    assert secret not in installation.everything_stored()
    other = server.browser()
    other.cookies.set("bloom_device", secret, domain="127.0.0.1", path="/")
    assert other.get("/api/me").status_code == 401


def test_a_new_password_forgets_the_other_browsers(
    server: Server, installation: Installation, member: User
) -> None:
    here, there = server.browser(), server.browser()
    assert [_sign_in(here, member), _sign_in(there, member)] == [200, 200]
    here.headers["X-CSRF-Token"] = here.get("/api/auth/state").json()["csrf_token"]
    body = {"current_password": PASSWORD, "new_password": "another walk in that garden"}
    assert here.post("/api/me/password", json=body).status_code == 204
    assert len(installation.all(KnownDevice)) == 1


@pytest.mark.usefixtures("one_rate_window")
def test_a_stranger_who_asks_for_emails_takes_none_from_the_owner(
    server: Server, installation: Installation, member: User
) -> None:
    forgot, body = "/api/auth/password/forgot", {"email": member.email}
    owner = server.browser()
    assert owner.post(forgot, json=body).status_code == 202
    first = link_secret(installation.sent_emails()[0])
    for number in range(5):
        stranger = server.browser(address=f"10.0.0.{number}")
        assert {stranger.post(forgot, json=body).status_code for _ in range(5)} == {202}
        assert stranger.post(forgot, json=body).status_code == 429
    assert owner.post(forgot, json=body).status_code == 202
    assert len(installation.sent_emails()) == 20, "a mailbox is not to be filled"
    reset = {"token": first, "password": "another walk in that garden"}
    assert owner.post("/api/auth/password/reset", json=reset).status_code == 204, "and earlier links work"
