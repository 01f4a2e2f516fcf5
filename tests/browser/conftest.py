"""A real Chromium against a real server. Every page is watched: no error, no request to elsewhere."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, expect, sync_playwright

from tests.live_server import LiveServer, live_server

ROOT = Path(__file__).parent.parent.parent
STATIC = ROOT / "src/gpubloom/server/web/static"
AXE = ROOT / "ui/node_modules/axe-core/axe.min.js"
DESKTOP, PHONE = (1440, 900), (390, 844)
# The same story on a phone is one of `make test-long`.
EVERY_SIZE = pytest.mark.parametrize(
    "size",
    [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone", marks=pytest.mark.long)],
)
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# Waiting ends with what is waited for; this only bounds it on a busy machine.
TIMEOUT_MS = 60_000
expect.set_options(timeout=TIMEOUT_MS)

NewPage = Callable[..., Page]
Motion = Literal["no-preference", "reduce"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one module stay together, so that its servers and its browser are started once."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.xdist_group(f"browser {item.path.stem}"))


# Not for the whole session: Playwright keeps an event loop running, and other tests need one of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine (apt install chromium-headless-shell)")
    if not (STATIC / "index.html").is_file():
        pytest.skip("the web app is not built (make ui)")
    playwright: Playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with a worker; starting one takes longer than most tests."""
    home = tmp_path_factory.mktemp("app") / "home"
    with live_server(home, command="up", BLOOM_SIGNUP="open") as running:
        yield running


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server alone."""
    with live_server(tmp_path_factory.mktemp("server") / "home", BLOOM_SIGNUP="open") as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LiveServer]:
    """A server that nobody has seen yet, for one test."""
    with live_server(tmp_path / "home", BLOOM_SIGNUP="open") as running:
        yield running


@pytest.fixture
def live_app(request: pytest.FixtureRequest) -> LiveServer:
    """The app with a worker, shared by this module; `set_up` gives every test a person of its own there."""
    found: LiveServer = request.getfixturevalue("shared_app")
    return found


@pytest.fixture
def server(request: pytest.FixtureRequest) -> LiveServer:
    """What the test asks for, otherwise the one of its module."""
    kind = next((kind for kind in ("live_app", "own_server") if kind in request.fixturenames), None)
    if kind is None:
        kind = "shared_app" if getattr(request.module, "SHARED_APP", False) else "shared_server"
    found: LiveServer = request.getfixturevalue(kind)
    return found


@pytest.fixture
def new_page(chromium: Browser, server: LiveServer) -> Iterator[NewPage]:
    """Opens pages of separate browsers; at the end none of them may have seen an error."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(size: tuple[int, int] = DESKTOP, *, motion: Motion = "reduce") -> Page:
        context = chromium.new_context(
            base_url=server.address,
            viewport={"width": size[0], "height": size[1]},
            reduced_motion=motion,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: complaints.append(f"error on {page.url}: {error}"))
        page.on("request", lambda request: _watch(request, server, complaints))
        page.on(
            "console",
            lambda message: (
                complaints.append(f"console on {page.url}: {message.text}")
                if "Content Security Policy" in message.text
                else None
            ),
        )
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _watch(request: Request, server: LiveServer, complaints: list[str]) -> None:
    if not request.url.startswith((server.address, "data:", "blob:")):
        complaints.append(f"a request left for {request.url}")


# A page that is still moving has half-transparent texts. What turns for ever is not waited for.
_AXE = """async () => {
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  const ends = ({ effect }) => effect?.getComputedTiming().endTime !== Infinity;
  await Promise.allSettled(document.getAnimations().filter(ends).map(({ finished }) => finished));
  return axe.run(document, { resultTypes: ["violations"] });
}"""


def axe_violations(page: Page) -> list[str]:
    """What axe finds wrong with a page, one line each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    result = page.evaluate(_AXE)
    return [
        f"{page.url} {violation['id']}: {node['html'][:160]}"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]


def flaws_on_every_screen(page: Page) -> list[str]:
    """What is wrong with an open page on a desktop and on a phone; it is a desktop's again afterwards."""
    found = []
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        found += axe_violations(page)
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"{page.url} is wider than a screen of {width} pixels")
    return found
