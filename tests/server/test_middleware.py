"""What is refused before anybody looks at it, and the headers that every answer carries."""

from collections.abc import Iterator

import pytest

from gpubloom.server.logs import configure_logs
from gpubloom.server.security.middleware import RequestGuard
from gpubloom.server.settings import Settings
from tests.server.installation import Browser, Installation, Server

PROJECT = {"name": "Bloom", "modelArchitecture": "transformer", "modelSize": 1}


@pytest.fixture(scope="module")
def browser(sqlite_server: Server) -> Browser:
    return sqlite_server.stranger


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "localhost.",
        "0.0.0.0",
        "[::2]",
        "",
    ],
)
def test_other_host_names_are_refused(browser: Browser, host: str) -> None:
    answer = browser.get("/api/health", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_host")
    assert browser.get("/", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1", "[::1]:8000"])
def test_the_loopback_names_are_answered(browser: Browser, host: str) -> None:
    assert browser.get("/api/health", headers={"Host": host}).status_code == 200


def test_the_operator_can_allow_more_names() -> None:
    settings = Settings(
        _env_file=None, public_url="https://bloom.example.org", allowed_hosts="a.example, B.example"
    )
    assert {"bloom.example.org", "a.example", "b.example", "localhost"} <= settings.hosts
    assert RequestGuard(None, hosts=settings.hosts).hosts == settings.hosts


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8000.evil.example"},
        {"Origin": "http://[broken"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_cannot_change_anything(browser: Browser, headers: dict[str, str]) -> None:
    for path in ("/api/projects", "/api/auth/sign-in", "/api/me/password"):
        answer = browser.post(path, json=PROJECT, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")


def test_a_page_of_this_site_can(browser: Browser) -> None:
    headers = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
    assert browser.post("/api/projects", json=PROJECT, headers=headers).status_code == 201


@pytest.mark.parametrize("token", ["", "wrong", "x" * 43, "é"])
def test_without_the_right_csrf_token_a_browser_changes_nothing(browser: Browser, token: str) -> None:
    headers = {"X-CSRF-Token": token.encode("latin-1")}
    answer = browser.post("/api/projects", json=PROJECT, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
    assert browser.get("/api/projects", headers=headers).status_code == 200


def test_anothers_csrf_token_does_not_help(server: Server, installation: Installation) -> None:
    ada, eve = (server.signed_in(installation.add_user(name)) for name in ("Ada", "Eve"))
    headers = {"X-CSRF-Token": eve.headers["X-CSRF-Token"]}
    assert ada.post("/api/projects", json=PROJECT, headers=headers).status_code == 403


HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture
def broken(sqlite_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A browser whose server fails at every look into the database."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("gpubloom.server.administration.service.list_people", fail)
    monkeypatch.setattr("gpubloom.server.projects.service.list_projects", fail)
    return sqlite_server.stranger


def test_every_kind_of_answer_has_the_security_headers(browser: Browser, broken: Browser) -> None:
    answers = {
        200: browser.get("/api/health"),
        204: browser.delete("/api/me/sessions"),
        400: browser.get("/api/health", headers={"Host": "evil.example"}),
        401: browser.get("/api/me", headers={"Authorization": "Bearer x"}),
        403: browser.get("/api/users"),
        404: browser.get("/api/nothing"),
        405: browser.put("/api/health"),
        413: browser.post("/api/projects", content=b"x" * 1_100_000),
        422: browser.post("/api/projects", json={}),
        500: broken.get("/api/projects"),
    }
    pages = [browser.get("/"), browser.get("/projects/x"), browser.get("/assets/none.js")]
    for code, answer in [*answers.items(), *((page.status_code, page) for page in pages)]:
        assert answer.status_code == code
        assert HEADERS.items() <= dict(answer.headers).items(), code
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "server" not in answer.headers
        if answer.url.path.startswith("/api/"):
            assert answer.headers["cache-control"] == "no-store", code
        if code >= 400 and answer.url.path.startswith("/api/"):
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == code
            assert answer.json()["code"]
            assert " " in answer.json()["detail"]


def test_a_bug_is_logged_without_secrets_and_the_client_told_nothing_of_it(
    broken: Browser, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logs("text")
    answer = broken.get("/api/projects")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "a bug" not in answer.text
    logged = capfd.readouterr().err
    assert "RuntimeError: a bug" in logged
    assert broken.secret not in logged, "a traceback must not show what variables held"


@pytest.mark.parametrize(
    "path", ["/" + "a" * 300, "/%00", "/..%2f..%2fetc%2fpasswd", "/%2e%2e", "/\\..\\x", "/a/../../etc/passwd"]
)
def test_a_strange_page_address_breaks_nothing(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code in {200, 404, 503}
    assert "root:" not in answer.text


@pytest.mark.parametrize("length", ["1048577", "9" * 5000, "-1", "1e3", "²"])
def test_a_strange_or_large_declared_length_is_refused(browser: Browser, length: str) -> None:
    headers = {"Content-Length": length.encode("latin-1")}
    assert browser.post("/api/projects", content=b"{}", headers=headers).status_code == 413
