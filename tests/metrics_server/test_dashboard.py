"""The dashboard in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from gpubloom.traincard import ControlFile, Reporter
from gpubloom.traincard.card.page import STATIC
from tests.browser.conftest import axe_violations, chromium
from tests.metrics_server.conftest import TIMEOUT, Served, start_server

__all__ = ["chromium"]

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def page(chromium: Browser, served: Served) -> Iterator[Page]:
    """A page that may talk to the server and to nobody else."""
    if not (STATIC / "card.js").is_file():
        pytest.skip("the card's page is not built (make ui)")
    complaints: list[str] = []
    context = chromium.new_context()
    opened = context.new_page()
    opened.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    opened.on(
        "request",
        lambda request: (
            None if request.url.startswith(f"http://{served.host}/") else complaints.append(request.url)
        ),
    )
    opened.on(
        "console",
        lambda message: complaints.append(message.text) if "Content Security" in message.text else None,
    )
    yield opened
    context.close()
    assert complaints == []


@pytest.mark.long
def test_the_dashboard_follows_the_run_and_controls_it(page: Page, served: Served) -> None:
    page.goto(f"{served.address}#token={served.token}")
    expect(page.locator("h1")).to_contain_text("run")
    expect(page.locator('[id="metric-loss"] .legend')).to_contain_text("1.5")
    # The token does not stay where a shoulder or a history could read it.
    assert page.url == served.address
    served.reporter.metrics({"train/loss": 0.125}, step=777)
    expect(page.locator("#status")).to_contain_text("777")
    expect(page.locator('[id="metric-loss"] .legend')).to_contain_text("0.125")
    control = ControlFile(served.run_dir)
    saves = control.read().save
    page.get_by_role("button", name="Save checkpoint").click()
    expect(page.locator("#control")).to_contain_text("Checkpoint requested")
    assert control.read().save == saves + 1
    page.get_by_role("textbox", name="Learning rate").fill("zero")
    page.get_by_role("button", name="Apply settings").click()
    expect(page.locator("#control")).to_contain_text("Learning rate is not a number")
    page.get_by_role("textbox", name="Learning rate").fill("11")
    page.get_by_role("button", name="Apply settings").click()
    expect(page.get_by_role("textbox", name="Learning rate")).to_have_attribute("placeholder", "11")
    assert control.read().set == {"learning_rate": 11}
    served.reporter.applied(control.read().version, {"learning_rate": "11 is not between 0 and 10"})
    expect(page.locator("#control")).to_contain_text("Learning rate was refused: 11 is not between 0 and 10.")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    expect(page.get_by_role("button", name="Pause")).to_be_disabled()
    assert control.read().want == "pause"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_enabled()
    assert control.read().want == "run"
    assert axe_violations(page) == []


def test_without_the_token_the_dashboard_shows_and_says_what_is_missing(page: Page, served: Served) -> None:
    before = ControlFile(served.run_dir).read().version
    page.goto(served.address)
    page.get_by_role("button", name="Save checkpoint").click()
    expect(page.locator("#control")).to_contain_text("requires the token that was printed")
    assert ControlFile(served.run_dir).read().version == before
    page.get_by_label("Token").fill(served.token)
    page.get_by_role("button", name="Save checkpoint").click()
    expect(page.locator("#control")).to_contain_text("Checkpoint requested")
    assert ControlFile(served.run_dir).read().version == before + 1


@pytest.mark.long
def test_a_script_that_never_looks_for_commands_is_offered_none(chromium: Browser, tmp_path: Path) -> None:
    with Reporter(tmp_path / "run", telemetry_seconds=0, flush_seconds=0.05) as reporter:
        reporter.metrics({"train/loss": 1.5}, step=1)
        reporter.flush()
        process, address, _ = start_server(tmp_path / "run")
        page = chromium.new_page()
        try:
            page.goto(address)
            expect(page.locator("#control")).to_contain_text("This script does not look for commands")
            expect(page.get_by_role("button", name="Save checkpoint")).to_be_hidden()
            reporter.control.poll()
            expect(page.get_by_role("button", name="Save checkpoint")).to_be_visible()
        finally:
            page.close()
            process.terminate()
            process.wait(TIMEOUT)
            process.communicate()
