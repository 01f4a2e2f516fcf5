"""What people do with a folder of their own."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

FOLDER = Path(__file__).parent.parent / "nanogpt_folder"


def bring(page: Page) -> None:
    """From the dashboard to the page with the folder on it, and what was found in it."""
    page.get_by_role("main").get_by_role("link", name="Run a script").click()
    page.get_by_label("Choose a folder").set_input_files(FOLDER)
    expect(page.get_by_label("Script requirements")).to_contain_text("derived")


def editor(page: Page, file: str = "train.py") -> Locator:
    """The code editor. It takes `fill` like every field; `expect_text` reads it."""
    return page.get_by_label(f"Text of {file}")


def expect_text(editor: Locator, text: str) -> None:
    """The editor is no form element: its text lies in its lines."""
    expect(editor.locator(".cm-line")).to_have_text(text.split("\n"))


def start(page: Page, name: str = FOLDER.name, *, rented: bool = False) -> None:
    """What costs money says how much before it starts."""
    page.get_by_role("button", name="Start the job").first.click()
    if rented:
        quote = page.get_by_role("dialog", name="Rent this instance?")
        expect(quote).to_contain_text(re.compile(r"Expected cost\$\d"))
        quote.get_by_role("button", name="Rent and start").click()
    page.wait_for_url(re.compile(r"/projects/[0-9a-f-]{36}/jobs/[0-9a-f-]{36}$"))
    expect(page.get_by_role("heading", name=name)).to_be_visible()
