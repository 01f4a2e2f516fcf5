"""Browser sessions: the rules at the head of accounts/sessions.py, one by one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from gpubloom.server.accounts.principal import Principal, still_valid
from gpubloom.server.accounts.sessions import GRACE, IDLE_LIFE, LONGEST_LIFE, RENEW_AFTER, RESEND_AFTER
from gpubloom.server.accounts.tables import BrowserSession, User
from gpubloom.server.clock import now
from gpubloom.server.security.secrets import fingerprint
from tests.server.installation import Browser, Installation, Server

MOMENT = timedelta(seconds=1)


class Visit:
    """One signed-in browser, and the clock of its session."""

    def __init__(self, server: Server, installation: Installation, user: User) -> None:
        self._installation = installation
        self._server = server
        self.secret, self.row = installation.add_session(user)
        self.browser = server.browser().signed_in_as(self.secret, self.row.csrf_token)

    def passes(self, time: timedelta) -> None:
        """Let time pass for the stored session."""
        stored = self.stored()
        names = ("renewed_at", "next_issued_at", "created_at", "last_seen_at", "expires")
        values = {name: getattr(stored, name) for name in names}
        self._installation.change(
            stored, **{name: value - time for name, value in values.items() if value is not None}
        )

    def stored(self) -> BrowserSession:
        row = self._installation.get(BrowserSession, self.row.id)
        assert row is not None, "the session ended"
        return row

    def ended(self) -> bool:
        return self._installation.get(BrowserSession, self.row.id) is None

    def works(self, secret: str) -> bool:
        """Whether a copy of this secret opens the account; the answer's cookie is thrown away."""
        copy: Browser = self._server.browser().signed_in_as(secret, self.row.csrf_token)
        return copy.get("/api/me").status_code == 200


@pytest.fixture
def visit(server: Server, installation: Installation, member: User) -> Iterator[Visit]:
    return Visit(server, installation, member)


def test_a_young_session_keeps_its_secret(visit: Visit) -> None:
    visit.passes(RENEW_AFTER - timedelta(minutes=1))
    assert "set-cookie" not in visit.browser.get("/api/me").headers


def test_an_older_session_is_sent_its_next_secret_and_uses_it(visit: Visit) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    assert "set-cookie" in visit.browser.get("/api/me").headers
    new = visit.browser.secret
    assert new != visit.secret
    assert visit.stored().fingerprint == fingerprint(visit.secret)
    assert visit.browser.get("/api/me").status_code == 200
    stored = visit.stored()
    assert (stored.fingerprint, stored.previous_fingerprint) == (fingerprint(new), fingerprint(visit.secret))
    assert stored.next_fingerprint is None
    assert stored.expires > now() + IDLE_LIFE - timedelta(minutes=1)


def test_a_lost_response_signs_nobody_out(visit: Visit) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    assert visit.works(visit.secret), "the answer with the new secret was thrown away here"
    assert visit.works(visit.secret)
    visit.passes(RESEND_AFTER + MOMENT)
    assert "set-cookie" in visit.browser.get("/api/me").headers, "another one is sent in the end"
    assert visit.browser.get("/api/me").status_code == 200


def test_the_next_secret_is_not_sent_again_at_once(visit: Visit) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    assert "set-cookie" in visit.browser.get("/api/me").headers
    visit.browser.signed_in_as(visit.secret, visit.row.csrf_token)
    assert "set-cookie" not in visit.browser.get("/api/me").headers


def test_the_replaced_secret_works_for_requests_under_way(visit: Visit) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    visit.browser.get("/api/me")
    visit.browser.get("/api/me")
    visit.passes(GRACE - timedelta(seconds=10))
    assert visit.works(visit.secret)
    assert not visit.ended()


def test_the_replaced_secret_shown_later_ends_the_session_and_is_audited(
    visit: Visit, installation: Installation
) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    visit.browser.get("/api/me")
    assert visit.browser.get("/api/me").status_code == 200
    visit.passes(GRACE + MOMENT)
    assert not visit.works(visit.secret)
    assert visit.ended()
    assert visit.browser.get("/api/me").status_code == 401, "the thief and the owner are both signed out"
    assert installation.actions() == ["session.reused_secret"]


def test_of_many_requests_at_once_one_renews(visit: Visit, server: Server) -> None:
    visit.passes(RENEW_AFTER + MOMENT)

    def ask(_: int) -> tuple[int, bool]:
        browser = server.browser().signed_in_as(visit.secret, visit.row.csrf_token)
        answer = browser.get("/api/me")
        return answer.status_code, "set-cookie" in answer.headers

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert [code for code, _ in answers] == [200] * 6
    assert [renewed for _, renewed in answers].count(True) == 1


def test_many_requests_with_the_new_secret_at_once_all_succeed(visit: Visit, server: Server) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    visit.browser.get("/api/me")
    new = visit.browser.secret
    assert new is not None
    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(visit.works, [new] * 4 + [visit.secret] * 2))
    assert visit.works(new)


@pytest.mark.parametrize("age", ["idle", "longest"])
def test_a_session_ends_after_its_idle_and_its_longest_life(
    visit: Visit, installation: Installation, age: str
) -> None:
    if age == "idle":
        visit.passes(IDLE_LIFE + MOMENT)
    else:
        installation.change(visit.stored(), created_at=now() - LONGEST_LIFE - MOMENT)
    assert visit.browser.get("/api/me").status_code == 401


def test_the_cookie_is_for_this_host_and_no_script(server: Server, visit: Visit) -> None:
    visit.passes(RENEW_AFTER + MOMENT)
    cookie = visit.browser.get("/api/me").headers["set-cookie"]
    name, _, rest = cookie.partition("=")
    attributes = {part.strip().lower() for part in rest.split(";")[1:]}
    assert name == "bloom_session"
    assert attributes == {"httponly", "path=/", "samesite=lax", f"max-age={90 * 24 * 3600}"}


def test_over_tls_the_cookie_is_bound_to_host_and_channel(installation: Installation, member: User) -> None:
    with installation.serve(public_url="https://bloom.example.org") as server:
        visit = Visit(server, installation, member)
        visit.passes(RENEW_AFTER + MOMENT)
        answer = visit.browser.get("/api/me")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("__host-bloom_session=")
    assert "; secure" in cookie
    assert "domain" not in cookie
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"


def test_sign_out_ends_the_session_and_clears_the_cookie(visit: Visit, installation: Installation) -> None:
    answer = visit.browser.post("/api/auth/sign-out")
    assert answer.status_code == 204
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert visit.ended()
    assert not visit.works(visit.secret)
    assert installation.actions() == ["user.signed_out"]


def test_a_person_sees_and_ends_their_own_sessions(
    server: Server, installation: Installation, member: User
) -> None:
    here, there, third = (Visit(server, installation, member) for _ in range(3))
    listed = here.browser.get("/api/me/sessions").json()["items"]
    assert {item["id"] for item in listed} == {str(visit.row.id) for visit in (here, there, third)}
    assert [item["id"] for item in listed if item["current"]] == [str(here.row.id)]
    assert here.browser.delete(f"/api/me/sessions/{there.row.id}").status_code == 204
    assert (there.ended(), third.ended()) == (True, False)
    assert here.browser.delete("/api/me/sessions").status_code == 204
    assert (here.ended(), third.ended()) == (False, True)
    assert installation.actions() == ["session.ended", "session.ended_others"]


def test_dead_sessions_are_not_listed(server: Server, installation: Installation, member: User) -> None:
    here = Visit(server, installation, member)
    installation.add_session(member, expires=now() - MOMENT)
    installation.add_session(member, created_at=now() - LONGEST_LIFE - MOMENT)
    listed = here.browser.get("/api/me/sessions").json()["items"]
    assert [item["id"] for item in listed] == [str(here.row.id)]


def test_a_long_listener_is_judged_by_its_session_not_by_an_old_cookie(
    installation: Installation, server: Server, member: User
) -> None:
    """A stream shows the cookie of its beginning; renewed since, that cookie must not end the session."""
    _, row = installation.add_session(member, previous_fingerprint="0" * 64)
    listener = Principal(
        user=member,
        scopes=frozenset({"read"}),
        session_id=row.id,
        api_token_id=None,
        csrf_token=None,
        ip_address=None,
    )
    portal = server.stranger.portal
    assert portal is not None
    assert portal.call(still_valid, server.app.state.database, listener)
    installation.change(member, disabled=True)
    assert not portal.call(still_valid, server.app.state.database, listener)
    installation.change(member, disabled=False)
    installation.change(row, expires=now() - timedelta(seconds=1))
    assert not portal.call(still_valid, server.app.state.database, listener)
