"""Every page, on a desktop and on a phone: no accessibility violation, nothing wider than the screen."""

import gzip
import re

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

import gpubloom
from gpubloom.server.accounts.tables import User
from tests.browser.conftest import PHONE, ROOT, STATIC, Motion, NewPage, flaws_on_every_screen
from tests.browser.people import create_project, set_up
from tests.live_server import LiveServer
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_checkpoint, add_job, add_project

STRANGERS = (
    "/",
    "/auth",
    "/auth/forgot",
    "/auth/verify",
    "/auth/reset",
    "/auth/second-factor",
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
    "/settings?tab=alerts",
    "/settings?tab=people",
    "/settings?tab=audit",
    "/runs",
    "/datasets",
    "/datasets/00000000-0000-0000-0000-000000000000",
    "/models",
    "/finetune",
    "/script",
    "/providers",
    "/checkpoints",
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


@pytest.mark.long
def test_no_page_has_an_accessibility_violation(new_page: NewPage, own_server: LiveServer) -> None:
    page = new_page()
    findings = [finding for path in STRANGERS for finding in _findings(page, path)]
    set_up(page, own_server)
    findings += [finding for path in MEMBERS for finding in _findings(page, path)]
    project = create_project(page, "Contract assistant")
    findings += _findings(page, project)
    findings += _findings(page, f"{project}/jobs/new")
    assert findings == []


@pytest.mark.long
def test_names_without_a_space_make_no_page_wider_than_the_screen(
    new_page: NewPage, own_server: LiveServer
) -> None:
    name = "W" * 116
    page = new_page()
    email = set_up(page, own_server, name="A" * 100)
    home = own_server.home
    installation = Installation(home, f"sqlite:///{home / 'bloom.db'}")
    with installation.session() as session:
        owner = session.scalars(select(User).where(User.email == email)).one()
    project = add_project(
        installation, owner, name=name, description="W" * 400, training_data_path="s3://" + "W" * 300
    )
    job = add_job(
        installation, owner, name=name, project_id=project.id, status="completed", error_message="W" * 300
    )
    add_checkpoint(installation, job, 10)
    page.goto("/datasets")
    file = {"name": f"{name}.txt", "mimeType": "text/plain", "buffer": b"One line.\n" * 20}
    page.locator("input[type=file]").first.set_input_files(file)  # type: ignore[arg-type]
    page.wait_for_url("**/datasets/*-*")
    paths = ["/dashboard", "/projects", "/runs", "/datasets", "/checkpoints", page.url]
    paths += ["/settings?tab=people", "/settings?tab=audit", f"/projects/{project.id}"]
    paths += [f"/projects/{project.id}/jobs/new"]
    paths += [
        f"/projects/{project.id}/jobs/{job.id}?tab={tab}" for tab in ("overview", "config", "checkpoints")
    ]
    assert [finding for path in paths for finding in _findings(page, path)] == []


def test_the_footer_names_the_version_and_links_to_what_the_server_has(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    page.goto("/")
    expect(page.get_by_role("contentinfo")).to_contain_text(f"GPU Bloom {gpubloom.__version__}")
    set_up(page, server)
    footer = page.get_by_role("contentinfo")
    expect(footer).to_contain_text(f"GPU Bloom {gpubloom.__version__}")
    addresses = [link.get_attribute("href") for link in footer.get_by_role("link").all()]
    answers = {address: page.request.get(str(address)) for address in addresses}
    assert answers["/LICENSE.txt"].text() == (ROOT / "LICENSE").read_text()
    assert answers["/api/openapi.json"].json()["info"]["version"] == gpubloom.__version__
    assert len(answers) == 2


@pytest.mark.parametrize(("motion", "duration"), [("no-preference", 0.2), ("reduce", 0.00001)])
def test_pages_fade_in_unless_less_motion_is_wanted(
    new_page: NewPage, server: LiveServer, motion: Motion, duration: float
) -> None:
    page = new_page(motion=motion)
    set_up(page, server)
    # Read as it begins: a page that is drawn again is another element.
    page.evaluate(
        "window.fades = []; addEventListener('animationstart', ({ target }) => "
        "fades.push([target, parseFloat(getComputedStyle(target).animationDuration)]))"
    )
    page.get_by_role("link", name="Projects").first.click()
    expect(page.get_by_role("heading", name="Projects", level=1)).to_be_visible()
    faded = page.wait_for_function("fades.find(([element]) => element.querySelector('h1'))?.[1]")
    assert faded.json_value() == duration


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
