"""A real Chromium against a real server. Every page is watched: no error, no request to elsewhere."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, expect, sync_playwright

from tests.live_server import LiveServer, live_server

ROOT = Path(__file__).parent.parent.parent
STATIC = ROOT / "src/gpubloom/server/web/static"
AXE = ROOT / "ui/node_modules/axe-core/axe.min.js"
DESKTOP, PHONE = (1440, 900), (390, 844)
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
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

NewPage = Callable[..., Page]


# Not for the whole session: Playwright keeps an event loop running, and other tests need one of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine (apt install chromium)")
    if not (STATIC / "index.html").is_file():
        pytest.skip("the web app is not built (make ui)")
    playwright: Playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LiveServer]:
    """A server with a worker."""
    with live_server(tmp_path / "home", command="up") as running:
        yield running


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveServer]:
    """The house where a test asks for one, otherwise a server alone."""
    if "house" in request.fixturenames:
        yield request.getfixturevalue("house")
        return
    with live_server(tmp_path / "home", BLOOM_SIGNUP="open") as running:
        yield running


@pytest.fixture
def new_page(chromium: Browser, server: LiveServer) -> Iterator[NewPage]:
    """Opens pages of separate browsers; at the end none of them may have seen an error."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(size: tuple[int, int] = DESKTOP) -> Page:
        context = chromium.new_context(
            base_url=server.address,
            viewport={"width": size[0], "height": size[1]},
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
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


def axe_violations(page: Page) -> list[str]:
    """What axe finds wrong with a page, one line each."""
    # A page that is still moving has half-transparent texts.
    page.wait_for_timeout(150)
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
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
