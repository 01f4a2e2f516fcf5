"""Signing in through GitHub and Google, against a provider that stands on the loopback address."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyotp
import pytest

from gpubloom.server.accounts.oauth import local_path
from gpubloom.server.accounts.oauth_providers import Endpoints
from gpubloom.server.accounts.tables import BrowserSession, LinkedAccount, User
from gpubloom.server.audit import AuditEvent
from gpubloom.server.clock import now
from tests.server.installation import Browser, Installation, Server
from tests.server.oauth_provider import FakeProvider, fake_provider
from tests.server.test_pictures import image_file, upload

CLIENTS = {
    f"{name}_client_{part}": f"client-{part}" for name in ("github", "google") for part in ("id", "secret")
}


@pytest.fixture(params=["github", "google"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def provider(name: str) -> Iterator[FakeProvider]:
    with fake_provider() as fake:
        _knows(fake, name, "eve@example.org")
        yield fake


def _knows(fake: FakeProvider, name: str, email: Any, *, verified: bool = True, person: Any = "Eve") -> None:
    if name == "github":
        fake.profile = {"id": 4711, "login": "eve", "name": person, "email": None}
        fake.emails = [
            {"email": "other@example.org", "primary": False, "verified": True},
            {"email": email, "primary": True, "verified": verified},
        ]
    else:
        fake.profile = {"sub": "4711", "email": email, "email_verified": verified, "name": person}


@contextmanager
def _serving(installation: Installation, fake: FakeProvider, **settings: Any) -> Iterator[Server]:
    with installation.serve(**CLIENTS, **settings) as server:
        server.app.state.oauth = {
            name: replace(
                known,
                endpoints=Endpoints(
                    authorize_url=fake.address("/authorize"),
                    token_url=fake.address("/token"),
                    profile_url=fake.address("/profile"),
                    emails_url=fake.address("/emails") if known.endpoints.emails_url else None,
                ),
            )
            for name, known in server.app.state.oauth.items()
        }
        yield server


@pytest.fixture
def server(installation: Installation, admin: User, provider: FakeProvider) -> Iterator[Server]:
    with _serving(installation, provider, signup="open") as running:
        yield running


def _through(browser: Browser, fake: FakeProvider, name: str, start: str = "", **changes: str) -> str:
    """Go to the provider and come back; gives the address the browser is sent to in the end."""
    left = browser.get(f"/api/auth/oauth/{name}/start{start}")
    assert left.status_code == 303
    query = fake.opened(left.headers["location"])
    assert query["redirect_uri"] == f"http://127.0.0.1:8000/api/auth/oauth/{name}/callback"
    answer = {"state": query["state"], "code": "good-code", **changes}
    back = browser.get(
        f"/api/auth/oauth/{name}/callback", params={key: value for key, value in answer.items() if value}
    )
    assert back.status_code == 303
    return back.headers["location"]


def test_a_new_person_signs_up_and_comes_back_as_the_same(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    browser = server.browser()
    assert _through(browser, provider, name, "?next=/projects") == "/projects"
    me = browser.get("/api/me").json()
    assert (me["email"], me["name"], me["role"]) == ("eve@example.org", "Eve", "member")
    assert me["email_verified"] is not None
    _knows(provider, name, "moved@example.org")
    again = server.browser()
    assert _through(again, provider, name) == "/dashboard"
    assert again.get("/api/me").json()["id"] == me["id"], "the account there counts, not its address"
    assert len(installation.all(User)) == 2
    assert "provider-token" not in installation.everything_stored()
    assert installation.actions() == [
        "user.signed_up",
        "user.account_linked",
        "user.signed_in",
        "user.signed_in",
    ]


def test_what_does_not_fit_signs_nobody_in(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    failures = [
        ({"state": "forged"}, "oauth_failed"),
        ({"state": ""}, "oauth_failed"),
        ({"code": ""}, "oauth_denied"),
        ({"code": "bad-code"}, "oauth_failed"),
    ]
    for changes, code in failures:
        assert _through(server.browser(), provider, name, **changes) == f"/auth?error={code}"
    without_cookie = server.browser().get(f"/api/auth/oauth/{name}/callback?state=x&code=good-code")
    assert without_cookie.headers["location"] == "/auth?error=oauth_failed"
    for text in (
        "",
        "[1]",
        "[[",
        "[" * 9000,
        f'["{name}","\\ud800","v","n","/",null]',
        f'["{name}","x",[],{{}},1,null]',
    ):
        stranger = server.browser()
        stranger.cookies.set("bloom_oauth", text.encode().hex(), domain="127.0.0.1", path="/")
        answer = stranger.get(f"/api/auth/oauth/{name}/callback?state=x&code=good-code")
        assert (answer.status_code, answer.headers.get("location")) == (303, "/auth?error=oauth_failed")
    provider.broken = True
    assert _through(server.browser(), provider, name) == "/auth?error=oauth_failed"
    assert installation.all(BrowserSession) == []


def test_an_answer_for_one_provider_is_not_taken_from_another(
    server: Server, provider: FakeProvider, name: str
) -> None:
    browser = server.browser()
    query = provider.opened(browser.get(f"/api/auth/oauth/{name}/start").headers["location"])
    other = "google" if name == "github" else "github"
    back = browser.get(f"/api/auth/oauth/{other}/callback?state={query['state']}&code=good-code")
    assert back.headers["location"] == "/auth?error=oauth_failed"


def test_an_unconfirmed_address_there_is_not_trusted(
    server: Server, installation: Installation, provider: FakeProvider, name: str, admin: User
) -> None:
    _knows(provider, name, admin.email, verified=False)
    assert _through(server.browser(), provider, name) == "/auth?error=oauth_email_unverified"
    assert installation.all(LinkedAccount) == []


def test_an_email_address_alone_links_no_account(
    server: Server, installation: Installation, provider: FakeProvider, name: str, member: User
) -> None:
    _knows(provider, name, "ADA@example.org")
    browser = server.browser()
    assert _through(browser, provider, name) == "/auth?error=oauth_link_required"
    assert browser.get("/api/me").status_code == 401
    assert installation.all(LinkedAccount) == []
    assert installation.get(User, member.id).password_hash is not None


def _link(browser: Browser, fake: FakeProvider, name: str) -> str:
    """Link an account at the provider; gives the address the browser is sent to in the end."""
    left = browser.post("/api/me/linked-accounts", json={"provider": name})
    assert left.status_code == 200, left.text
    query = fake.opened(left.json()["address"])
    back = browser.get(
        f"/api/auth/oauth/{name}/callback", params={"state": query["state"], "code": "good-code"}
    )
    return str(back.headers["location"])


def test_a_signed_in_person_links_an_account_signs_in_with_it_and_unlinks_it(
    server: Server, installation: Installation, provider: FakeProvider, name: str, member: User
) -> None:
    # The address there is another one, and not even confirmed: the person is signed in.
    _knows(provider, name, "countess@example.net", verified=False)
    browser = server.signed_in(member)
    assert _link(browser, provider, name) == f"/settings?linked={name}"
    assert _link(browser, provider, name) == f"/settings?linked={name}", "once more changes nothing"
    [item] = browser.get("/api/me/linked-accounts").json()["items"]
    assert item["provider"] == name
    again = server.browser()
    assert _through(again, provider, name) == "/dashboard"
    assert again.get("/api/me").json()["id"] == str(member.id)
    assert browser.delete(f"/api/me/linked-accounts/{item['id']}").status_code == 204
    assert browser.get("/api/me/linked-accounts").json()["items"] == []
    assert _through(server.browser(), provider, name) == "/auth?error=oauth_email_unverified"
    assert installation.actions() == [
        *("user.account_linked", "user.signed_in", "user.account_unlinked", "user.sign_in_failed")
    ]


def test_a_provider_does_not_replace_the_second_factor(
    server: Server, installation: Installation, provider: FakeProvider, name: str, member: User
) -> None:
    installation.add(LinkedAccount(user_id=member.id, provider=name, provider_account_id="4711"))
    owner = server.signed_in(member)
    secret = owner.post("/api/me/totp").json()["secret"]
    enabled = owner.post("/api/me/totp/enable", json={"code": pyotp.TOTP(secret).now()}).json()
    browser = server.browser()
    assert _through(browser, provider, name, "?next=/projects") == "/auth/second-factor?next=%2Fprojects"
    assert browser.get("/api/me").status_code == 401
    code = {"code": enabled["recovery_codes"][0]}
    assert browser.post("/api/auth/second-factor", json=code).status_code == 200
    assert browser.get("/api/me").json()["id"] == str(member.id)


def test_an_account_there_belongs_to_one_person_here(
    server: Server, installation: Installation, provider: FakeProvider, name: str, member: User, admin: User
) -> None:
    assert _link(server.signed_in(member), provider, name) == f"/settings?linked={name}"
    assert _link(server.signed_in(admin), provider, name) == "/settings?error=oauth_account_taken"
    assert [row.user_id for row in installation.all(LinkedAccount)] == [member.id]


def test_only_the_session_that_asked_for_a_link_gets_it(
    server: Server, installation: Installation, provider: FakeProvider, name: str, member: User, admin: User
) -> None:
    asking = server.signed_in(member)
    left = asking.post("/api/me/linked-accounts", json={"provider": name})
    query = provider.opened(left.json()["address"])
    planted = asking.cookies["bloom_oauth"]
    for other in (server.signed_in(admin), server.signed_in(member), server.browser()):
        other.cookies.set("bloom_oauth", planted, domain="127.0.0.1", path="/")
        back = other.get(f"/api/auth/oauth/{name}/callback?state={query['state']}&code=good-code")
        assert back.headers["location"] == "/settings?error=oauth_failed"
    assert installation.all(LinkedAccount) == []


def test_linking_and_unlinking_need_a_fresh_sign_in_with_a_browser(
    server: Server, installation: Installation, provider: FakeProvider, name: str, member: User
) -> None:
    link = installation.add(LinkedAccount(user_id=member.id, provider=name, provider_account_id="4711"))
    browser, program = server.signed_in(member), server.program(member, "read", "write")
    [row] = installation.all(BrowserSession)
    installation.change(row, authenticated_at=now() - timedelta(minutes=11))
    for client, code in ((browser, "fresh_sign_in_required"), (program, "session_required")):
        answers = [
            client.post("/api/me/linked-accounts", json={"provider": name}),
            client.delete(f"/api/me/linked-accounts/{link.id}"),
        ]
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, code)}
    assert len(installation.all(LinkedAccount)) == 1


def test_the_last_way_in_is_not_unlinked(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    user = installation.add_user("Elsewhere", password_hash=None)
    first = installation.add(LinkedAccount(user_id=user.id, provider=name, provider_account_id="1"))
    # This server no longer knows that provider.
    installation.add(LinkedAccount(user_id=user.id, provider="gone", provider_account_id="2"))
    browser = server.signed_in(user)
    answer = browser.delete(f"/api/me/linked-accounts/{first.id}")
    assert (answer.status_code, answer.json()["code"]) == (409, "last_way_in")
    installation.add(LinkedAccount(user_id=user.id, provider=name, provider_account_id="3"))
    assert browser.delete(f"/api/me/linked-accounts/{first.id}").status_code == 204


def test_a_password_that_a_stranger_chose_before_does_not_open_the_account(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    squatter = installation.add_user("Eve", verified=False)
    _through(server.browser(), provider, name)
    account = installation.get(User, squatter.id)
    assert account.email_verified is not None
    assert account.password_hash is None


def test_a_disabled_account_stays_out(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    installation.add_user("Eve", disabled=True)
    assert _through(server.browser(), provider, name) == "/auth?error=oauth_failed"


def test_closed_sign_up_stays_closed_but_known_people_come_in(
    installation: Installation, provider: FakeProvider, name: str, admin: User
) -> None:
    with _serving(installation, provider) as server:
        assert _through(server.browser(), provider, name) == "/auth?error=signup_closed"
        installation.add(LinkedAccount(user_id=admin.id, provider=name, provider_account_id="4711"))
        assert _through(server.browser(), provider, name) == "/dashboard"


def test_a_provider_does_not_make_the_first_account(
    installation: Installation, provider: FakeProvider, name: str
) -> None:
    with _serving(installation, provider, signup="open") as server:
        assert _through(server.browser(), provider, name) == "/auth?error=signup_closed"
    assert installation.all(User) == []


def test_one_person_coming_twice_at_once_makes_one_account(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    # One page at the provider: the fake knows one challenge at a time.
    browser = server.browser()
    query = provider.opened(browser.get(f"/api/auth/oauth/{name}/start").headers["location"])
    cookie = browser.cookies["bloom_oauth"]

    def come_back(_: int) -> str:
        copy = server.browser()
        copy.cookies.set("bloom_oauth", cookie, domain="127.0.0.1", path="/")
        back = copy.get(f"/api/auth/oauth/{name}/callback?state={query['state']}&code=good-code")
        return back.headers.get("location", f"{back.status_code}")

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(come_back, range(4))) == {"/dashboard"}
    assert [user.email for user in installation.all(User)].count("eve@example.org") == 1


def test_a_strange_name_there_is_made_fit(installation: Installation, admin: User) -> None:
    with fake_provider() as fake, _serving(installation, fake, signup="open") as server:
        for number, person in enumerate((None, "a\x00b", "two\nlines", "\ud800", 7, "x" * 500)):
            _knows(fake, "google", f"person{number}@example.org", person=person)
            fake.profile["sub"] = str(number)
            browser = server.browser()
            assert _through(browser, fake, "google") == "/dashboard"
            shown = browser.get("/api/me").json()["name"]
            assert shown.isprintable()
            assert 1 <= len(shown) <= 120


def test_a_strange_address_there_signs_nobody_in(installation: Installation, admin: User) -> None:
    with fake_provider() as fake, _serving(installation, fake, signup="open") as server:
        for email in ("not an address", "a\x00@b.c", "\ud800@b.c", None, 7):
            _knows(fake, "google", email)
            assert _through(server.browser(), fake, "google") == "/auth?error=oauth_failed"


def test_a_provider_that_is_not_set_up_is_not_found(sqlite_server: Server) -> None:
    for path in ("github/start", "github/callback", "gitlab/start", "%00/start"):
        assert sqlite_server.browser().get(f"/api/auth/oauth/{path}").status_code == 404


@pytest.mark.parametrize("path", ["/projects", "/projects/1?tab=a#b", "/"])
def test_paths_of_this_site_are_kept(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "projects",
        "//evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        " //evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
    ],
)
def test_other_addresses_lead_to_the_dashboard(path: str) -> None:
    assert local_path(path) == "/dashboard"


def test_a_sign_in_provider_does_not_skip_the_second_factor(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    user = installation.add_user("Eve", password_hash=None)
    installation.add(LinkedAccount(user_id=user.id, provider=name, provider_account_id="4711"))
    owner = server.signed_in(user)
    totp = pyotp.TOTP(owner.post("/api/me/totp").json()["secret"])
    [paper, *_] = owner.post("/api/me/totp/enable", json={"code": totp.now()}).json()["recovery_codes"]
    browser = server.browser()
    assert _through(browser, provider, name, "?next=/jobs") == "/auth/second-factor?next=%2Fjobs"
    assert browser.get("/api/me").status_code == 401
    assert browser.post("/api/auth/second-factor", json={"code": paper}).status_code == 200
    assert browser.get("/api/me").json()["id"] == str(user.id)
    signed_in = [event for event in installation.all(AuditEvent) if event.action == "user.signed_in"]
    assert [event.details for event in signed_in] == [{"provider": name, "second_factor": "recovery_code"}]


def _with_picture(fake: FakeProvider, name: str, picture: bytes | str) -> None:
    fake.picture = picture
    fake.profile["avatar_url" if name == "github" else "picture"] = fake.address("/picture")


def test_the_picture_at_the_provider_is_taken_over_once(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    _with_picture(provider, name, image_file("JPEG"))
    browser = server.browser()
    assert _through(browser, provider, name) == "/dashboard"
    address = browser.get("/api/auth/state").json()["user"]["image"]
    assert browser.get(address).headers["content-type"] == "image/webp"
    [user] = [user for user in installation.all(User) if user.email == "eve@example.org"]
    server.signed_in(user).delete("/api/me/picture")
    again = server.browser()
    _through(again, provider, name)
    assert again.get("/api/auth/state").json()["user"]["image"] is None, "what was removed does not come back"


def test_a_picture_of_ones_own_is_not_replaced_by_linking(
    server: Server, installation: Installation, provider: FakeProvider, name: str
) -> None:
    _with_picture(provider, name, image_file("PNG"))
    browser = server.signed_in(installation.add_user("Eve", email="eve@example.org"))
    link = browser.post("/api/me/linked-accounts", json={"provider": name}).json()["address"]
    own = upload(browser, image_file("PNG", (300, 300))).json()["image"]
    query = provider.opened(link)
    browser.get(f"/api/auth/oauth/{name}/callback?state={query['state']}&code=good-code")
    assert len(browser.get("/api/me/linked-accounts").json()["items"]) == 1
    assert browser.get("/api/me").json()["image"] == own


@pytest.mark.parametrize(
    "picture", [b"no picture", b"\0" * (5 << 20), "http://169.254.169.254/latest/", "http://10.0.0.1/x", ""]
)
def test_a_picture_that_cannot_be_had_signs_in_all_the_same(
    server: Server, provider: FakeProvider, name: str, picture: bytes | str
) -> None:
    """Redirects to addresses of the operator's own network are not followed."""
    _with_picture(provider, name, picture)
    browser = server.browser()
    assert _through(browser, provider, name) == "/dashboard"
    assert browser.get("/api/auth/state").json()["user"]["image"] is None
