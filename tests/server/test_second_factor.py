"""Authenticator apps and recovery codes: setting up, signing in with them, and what guessers get."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyotp
import pytest

from gpubloom.server.accounts.recovery_codes import RecoveryCode
from gpubloom.server.accounts.second_step import PENDING_LIFE
from gpubloom.server.accounts.tables import BrowserSession, PendingSignIn, User
from gpubloom.server.accounts.totp import STEP_SECONDS, TotpSecret
from gpubloom.server.clock import now
from tests.server.installation import PASSWORD, Browser, Installation, Server

STEP = timedelta(seconds=STEP_SECONDS)


class Clock:
    """The time by which codes are checked; it stands still unless a test lets it pass."""

    def __init__(self) -> None:
        self.moment: datetime = now()

    def passes(self, time: timedelta) -> None:
        self.moment += time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("gpubloom.server.accounts.totp.now", lambda: clock.moment)
    return clock


class App:
    """A person's authenticator app, and their recovery codes on paper."""

    def __init__(self, secret: str, clock: Clock) -> None:
        self._totp = pyotp.TOTP(secret)
        self._clock = clock
        self.recovery_codes: list[str] = []

    def code(self, steps: int = 0) -> str:
        return self._totp.at(self._clock.moment, steps)

    def wrong_code(self) -> str:
        right = {self.code(steps) for steps in (-1, 0, 1)}
        return next(code for number in range(9) if (code := f"{number:06}") not in right)


SetUp = Callable[[User], App]


@pytest.fixture
def set_up(server: Server, clock: Clock) -> SetUp:
    """Gives a person an authenticator app; its first code belongs to an earlier step."""

    def set_up(user: User) -> App:
        browser = server.signed_in(user)
        app = App(browser.post("/api/me/totp").json()["secret"], clock)
        enabled = browser.post("/api/me/totp/enable", json={"code": app.code()})
        assert enabled.status_code == 200, enabled.text
        app.recovery_codes = enabled.json()["recovery_codes"]
        clock.passes(STEP)
        return app

    return set_up


def first_step(server: Server, user: User, *, address: str = "testclient") -> Browser:
    browser = server.browser(address=address)
    answer = browser.post("/api/auth/sign-in", json={"email": user.email, "password": PASSWORD})
    assert answer.status_code in {200, 202}, answer.text
    return browser


def _codes(answers: list[Any]) -> list[tuple[int, str]]:
    return [(answer.status_code, answer.json()["code"]) for answer in answers]


def _field_code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["errors"][0]["code"]


WRONG_CODE = (422, "wrong_code")


def test_an_app_counts_only_after_its_first_right_code(
    server: Server, installation: Installation, member: User, clock: Clock
) -> None:
    browser = server.signed_in(member)
    setup = browser.post("/api/me/totp").json()
    app = App(setup["secret"], clock)
    assert setup["link"].startswith("otpauth://totp/GPU%20Bloom:ada%40example.org?")
    assert setup["qr_code"].startswith("data:image/svg+xml")
    assert setup["secret"] not in installation.everything_stored()
    signed_in = server.browser().post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    assert "user" in signed_in.json(), "an app that is not enabled is not asked for"
    wrong = browser.post("/api/me/totp/enable", json={"code": app.wrong_code()})
    assert _field_code(wrong) == WRONG_CODE
    assert browser.get("/api/me/factors").json()["totp_enabled_at"] is None
    right = browser.post("/api/me/totp/enable", json={"code": app.code()})
    assert len(set(right.json()["recovery_codes"])) == 10
    assert browser.get("/api/me/factors").json()["totp_enabled_at"] is not None
    again = browser.post("/api/me/totp")
    assert (again.status_code, again.json()["code"]) == (409, "totp_already_enabled")
    assert "totp.enabled" in installation.actions()
    assert "authenticator app" in str(installation.sent_emails()[-1])


def test_a_sign_in_with_an_app_takes_two_steps(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    before = len(installation.all(BrowserSession))
    browser = server.browser()
    first = browser.post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    assert first.status_code == 202
    assert first.json() == {"second_factors": ["totp", "recovery_code"]}
    assert len(installation.all(BrowserSession)) == before
    assert browser.get("/api/me").status_code == 401
    cookie = first.headers["set-cookie"].lower()
    assert cookie.startswith("bloom_sign_in=")
    assert {"httponly", "samesite=strict", "max-age=600"} <= {part.strip() for part in cookie.split(";")}
    assert browser.cookies["bloom_sign_in"] not in installation.everything_stored()
    assert browser.get("/api/auth/second-factor").json() == first.json()
    second = browser.post("/api/auth/second-factor", json={"code": app.code()})
    assert second.json()["user"]["id"] == str(member.id)
    assert browser.get("/api/me").status_code == 200
    assert "bloom_sign_in" not in browser.cookies
    assert installation.all(PendingSignIn) == []
    assert installation.actions()[-1] == "user.signed_in"


def test_a_code_works_once(server: Server, member: User, set_up: SetUp, clock: Clock) -> None:
    app = set_up(member)
    code = app.code()
    first = first_step(server, member).post("/api/auth/second-factor", json={"code": code})
    assert first.status_code == 200
    again = first_step(server, member).post("/api/auth/second-factor", json={"code": code})
    assert _field_code(again) == WRONG_CODE
    earlier = first_step(server, member).post("/api/auth/second-factor", json={"code": app.code(-1)})
    assert _field_code(earlier) == WRONG_CODE, "an unused code from before the last one"
    clock.passes(STEP)
    assert (
        first_step(server, member).post("/api/auth/second-factor", json={"code": app.code()}).status_code
        == 200
    )


def test_a_clock_may_be_one_step_off_but_not_two(
    server: Server, member: User, set_up: SetUp, clock: Clock
) -> None:
    app = set_up(member)
    clock.passes(10 * STEP)
    for steps in (-2, 2):
        answer = first_step(server, member).post("/api/auth/second-factor", json={"code": app.code(steps)})
        assert _field_code(answer) == WRONG_CODE
    for steps in (-1, 1):
        code = app.code(steps)
        spaced = f"{code[:3]} {code[3:]}"
        answer = first_step(server, member).post("/api/auth/second-factor", json={"code": spaced})
        assert answer.status_code == 200


def test_a_recovery_code_replaces_the_app_once(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    [code, other, *_] = app.recovery_codes
    stored = installation.everything_stored()
    assert not any(each in stored or each.replace("-", "") in stored for each in app.recovery_codes)
    browser = first_step(server, member)
    typed = code.upper().replace("-", " ")
    assert browser.post("/api/auth/second-factor", json={"code": typed}).status_code == 200
    assert browser.get("/api/me/factors").json()["recovery_codes_left"] == 9
    assert "user.recovery_code_used" in installation.actions()
    again = first_step(server, member).post("/api/auth/second-factor", json={"code": code})
    assert _field_code(again) == WRONG_CODE
    eve = installation.add_user("Eve")
    set_up(eve)
    stolen = first_step(server, eve).post("/api/auth/second-factor", json={"code": other})
    assert _field_code(stolen) == WRONG_CODE, "a code of somebody else"


def test_new_recovery_codes_replace_the_old_ones(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    browser = server.signed_in(member)
    fresh = browser.post("/api/me/recovery-codes").json()["recovery_codes"]
    assert len(installation.all(RecoveryCode)) == 10
    answers = [
        first_step(server, member).post("/api/auth/second-factor", json={"code": code}).status_code
        for code in (app.recovery_codes[0], fresh[0])
    ]
    assert answers == [422, 200]
    none = server.signed_in(installation.add_user("Eve")).post("/api/me/recovery-codes")
    assert (none.status_code, none.json()["code"]) == (409, "no_second_factor")


@pytest.mark.long
def test_without_the_app_a_password_is_enough_again(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    set_up(member)
    assert server.signed_in(member).delete("/api/me/totp").status_code == 204
    assert installation.all(TotpSecret) == []
    assert installation.all(RecoveryCode) == []
    answer = server.browser().post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    assert answer.json()["user"]["id"] == str(member.id)
    assert "totp.disabled" in installation.actions()


def test_the_second_step_needs_the_first(server: Server, member: User, set_up: SetUp) -> None:
    app = set_up(member)
    stranger = server.browser()
    made_up = server.browser()
    made_up.cookies.set("bloom_sign_in", "x" * 43, domain=made_up.base_url.host, path="/")
    answers = [
        browser.request(method, "/api/auth/second-factor", json=body)
        for browser in (stranger, made_up)
        for method, body in (("GET", None), ("POST", {"code": app.code()}))
    ]
    assert set(_codes(answers)) == {(410, "sign_in_expired")}


def test_a_pending_sign_in_expires_and_is_good_for_nothing_else(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    browser = first_step(server, member)
    as_session = server.browser().signed_in_as(browser.cookies["bloom_sign_in"], "x")
    assert as_session.get("/api/me").status_code == 401
    [pending] = installation.all(PendingSignIn)
    assert pending.expires <= now() + PENDING_LIFE
    installation.change(pending, expires=now() - timedelta(seconds=1))
    answer = browser.post("/api/auth/second-factor", json={"code": app.code()})
    assert (answer.status_code, answer.json()["code"]) == (410, "sign_in_expired")


def test_a_changed_password_voids_sign_ins_under_way(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    thief = first_step(server, member)
    body = {"current_password": PASSWORD, "new_password": "another walk in a louder garden"}
    assert server.signed_in(member).post("/api/me/password", json=body).status_code == 204
    answer = thief.post("/api/auth/second-factor", json={"code": app.code()})
    assert (answer.status_code, answer.json()["code"]) == (410, "sign_in_expired")


def test_a_disabled_account_does_not_finish_its_sign_in(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    browser = first_step(server, member)
    installation.change(member, disabled=True)
    assert browser.post("/api/auth/second-factor", json={"code": app.code()}).status_code == 410


def test_a_verification_link_does_not_skip_the_second_factor(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    set_up(member)
    secret = installation.add_link("verify", member.email)
    answer = server.browser().post("/api/auth/verify", json={"token": secret, "password": PASSWORD})
    assert answer.status_code == 202
    assert answer.json() == {"second_factors": ["totp", "recovery_code"]}


@pytest.mark.long
@pytest.mark.usefixtures("one_rate_window")
def test_guessing_codes_is_limited_per_person_and_address(
    server: Server, installation: Installation, member: User, set_up: SetUp
) -> None:
    app = set_up(member)
    thief = first_step(server, member, address="10.6.6.6")
    answers = [
        thief.post("/api/auth/second-factor", json={"code": app.wrong_code()}).status_code for _ in range(11)
    ]
    assert answers == [422] * 10 + [429]
    assert thief.post("/api/auth/second-factor", json={"code": app.code()}).status_code == 429
    assert installation.actions().count("user.second_factor_failed") == 10
    owner = first_step(server, member)
    assert owner.post("/api/auth/second-factor", json={"code": app.code()}).status_code == 200


@pytest.mark.long
@pytest.mark.usefixtures("one_rate_window")
def test_guessers_at_many_addresses_share_a_limit_that_does_not_stop_the_owner(
    server: Server, installation: Installation, member: User, set_up: SetUp, clock: Clock
) -> None:
    app = set_up(member)
    at_home = first_step(server, member, address="192.0.2.1")
    assert at_home.post("/api/auth/second-factor", json={"code": app.code()}).status_code == 200
    clock.passes(STEP)
    statuses = []
    for number in range(7):
        thief = first_step(server, member, address=f"10.6.6.{number}")
        statuses += [
            thief.post("/api/auth/second-factor", json={"code": app.wrong_code()}).status_code
            for _ in range(10)
        ]
    # One is the owner's.
    assert statuses == [422] * 59 + [429] * 11
    at_home.cookies.delete("bloom_session")
    at_home.post("/api/auth/sign-in", json={"email": member.email, "password": PASSWORD})
    assert at_home.post("/api/auth/second-factor", json={"code": app.code()}).status_code == 200
    on_the_road = first_step(server, member, address="192.0.2.77")
    refused = on_the_road.post("/api/auth/second-factor", json={"code": app.code(1)})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert "recovery code" in refused.json()["detail"]
    with_paper = on_the_road.post("/api/auth/second-factor", json={"code": app.recovery_codes[0]})
    assert with_paper.status_code == 200


@pytest.mark.parametrize("code", ["\\ud800", "１２３４５６", "\\u0000", "-", " " * 6, "0" * 64])
def test_strange_codes_are_wrong_codes(server: Server, member: User, set_up: SetUp, code: str) -> None:
    set_up(member)
    browser = first_step(server, member)
    headers = {"Content-Type": "application/json"}
    answer = browser.post(
        "/api/auth/second-factor", content=f'{{"code": "{code}"}}'.encode(), headers=headers
    )
    assert _field_code(answer) == WRONG_CODE
