"""What people do in a browser: set up, sign up, sign in, make projects, use the page of a job."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.live_server import LiveServer

PASSWORD = "a walk in the quiet garden"


def set_up(page: Page, server: LiveServer, name: str = "Ada Lovelace", email: str = "ada@example.org") -> str:
    """Create an account: the first one with the link that the server printed, later ones as strangers do.

    Returns its address: later ones have a number in it.
    """
    if server.people:
        server.people += 1
        email = email.replace("@", f"{server.people}@")
        sign_up(page, server, name, email)
        return email
    page.goto(server.setup_link)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page).to_have_url(f"{server.address}/dashboard")
    server.people = 1
    return email


def sign_in(page: Page, email: str = "ada@example.org", password: str = PASSWORD) -> None:
    """Fill in the sign-in form that is shown."""
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).last.click()


def sign_up(page: Page, server: LiveServer, name: str, email: str) -> None:
    """Create an account where sign-up is open, and confirm it by the email in the outbox."""
    before = len(server.sent_emails)
    page.goto("/auth")
    page.get_by_role("tab", name="Sign up").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_text("Confirm your email address", exact=True)).to_be_visible()
    page.goto(server.newest_email_link(after=before))
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Confirm and sign in").click()
    expect(page).to_have_url(f"{server.address}/dashboard")


def create_project(page: Page, name: str, size: str = "0.001", data: str = "s3://bucket/corpus/") -> str:
    """Create a project by the form; returns the address of its page."""
    page.goto("/projects")
    page.get_by_role("button", name="New project").first.click()
    form = page.get_by_role("dialog")
    form.get_by_label("Project name").fill(name)
    form.get_by_label("Model size, in billions of parameters").fill(size)
    form.get_by_label("Training data").fill(data)
    form.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    return page.url


def bring_model(page: Page, folder: Path) -> None:
    """Upload a model folder and wait until it is checked."""
    page.goto("/models")
    page.get_by_role("button", name="Add a model").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Upload").click()
    dialog.locator("input[type=file]").set_input_files(folder)
    dialog.get_by_role("button", name="Upload model").click()
    expect(page.get_by_label(folder.name, exact=True).get_by_text("can be trained")).to_be_visible()


def open_tab(page: Page, name: str) -> None:
    """Open a tab of a job's page. A tab may have a count behind its name."""
    tab = page.get_by_role("tab", name=re.compile(f"^{name}"))
    tab.click()
    expect(tab).to_have_attribute("aria-selected", "true")


def open_section(page: Page, title: str) -> None:
    """Open a closed section of a form."""
    page.locator("summary", has_text=re.compile(f"^{title}")).click()


def choose_action(page: Page, name: str) -> None:
    """Choose what is in the menu of a job's page."""
    page.get_by_role("button", name="More actions", exact=True).click()
    page.get_by_role("menuitem", name=name, exact=True).click()
