"""Every page, on a desktop and on a phone: no accessibility violation, nothing wider than the screen."""

import gzip
import re

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import PHONE, STATIC, NewPage, flaws_on_every_screen
from tests.browser.people import create_project, set_up
from tests.live_server import LiveServer

STRANGERS = (
    "/",
    "/auth",
    "/auth/forgot",
    "/auth/verify",
    "/auth/reset",
    "/setup",
    "/no-such-page",
    "/shared",
)
MEMBERS = (
    "/dashboard",
    "/projects",
    "/settings",
    "/settings?tab=sessions",
    "/settings?tab=tokens",
    "/settings?tab=people",
    "/settings?tab=audit",
    "/jobs",
    "/datasets",
    "/datasets/00000000-0000-0000-0000-000000000000",
    "/models",
    "/finetune",
    "/script",
    "/providers",
    "/checkpoints",
    "/compare",
    "/playground",
    "/no-such-page",
)
LARGEST_SHELL_BYTES = 250 * 1000


def _findings(page: Page, path: str) -> list[str]:
    page.goto(path)
    page.wait_for_load_state("networkidle")
    # What is not there is asked for more than once before the page says so.
    page.locator("h1").first.wait_for()
    return flaws_on_every_screen(page)


def test_no_page_has_an_accessibility_violation(new_page: NewPage, own_server: LiveServer) -> None:
    page = new_page()
    findings = [finding for path in STRANGERS for finding in _findings(page, path)]
    set_up(page, own_server)
    findings += [finding for path in MEMBERS for finding in _findings(page, path)]
    project = create_project(page, "Contract assistant")
    findings += _findings(page, project)
    findings += _findings(page, f"{project}/jobs/new")
    assert findings == []


def test_the_menu_of_a_phone_can_be_used_by_keyboard(new_page: NewPage, server: LiveServer) -> None:
    page = new_page(PHONE)
    set_up(page, server)
    page.get_by_role("button", name="Open menu").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("link", name="Projects").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/projects")


def test_the_shell_is_small() -> None:
    """What the first page needs: everything that index.html names."""
    index = STATIC / "index.html"
    if not index.is_file():
        pytest.skip("the web app is not built (make ui)")
    named = re.findall(r'(?:src|href)="/(assets/[^"]+\.(?:js|css))"', index.read_text())
    assert named
    total = sum(len(gzip.compress((STATIC / name).read_bytes())) for name in named)
    assert total <= LARGEST_SHELL_BYTES, f"{total / 1000:.0f} KB gzip"
