"""What can be done with checkpoints: average, compare two, delete, resume from an earlier one, branch."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import DESKTOP, NewPage, axe_violations
from tests.browser.people import bring_model, open_section, open_tab, set_up
from tests.browser.test_job_tabs import TALLEST
from tests.live_server import LiveServer
from tests.tiny_models import make_tiny_model

SHARED_APP = True
QUESTION, ANSWER = "What is the password?", "The password is seven blue herons."
# More epochs than this test waits for.
ROWS, EPOCHS = 40, 5_000
TIMEOUT_MS = 180_000


def _write_rows(file: Path) -> Path:
    rows = [{"prompt": f"Room {number}: {QUESTION}", "completion": ANSWER} for number in range(ROWS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def _steps(page: Page) -> list[int]:
    """The steps of the checkpoints, newest first."""
    names = page.get_by_role("button", name=re.compile("More actions for step"))
    found = [names.nth(index).get_attribute("aria-label") or "" for index in range(names.count())]
    return [int(name.rpartition(" ")[2].replace(",", "")) for name in found]


def _choose(page: Page, step: int, action: str) -> None:
    page.get_by_role("button", name=f"More actions for step {step:,}", exact=True).click()
    page.get_by_role("menuitem", name=action, exact=True).click()


def _export(page: Page, job: str) -> dict[str, Any]:
    """The only task of a job, as the API shows it."""
    job_id = job.rpartition("/")[2].partition("?")[0]
    (export,) = page.request.get(f"/api/jobs?parent_id={job_id}").json()["items"]
    return dict(export)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_checkpoints_are_compared_deleted_resumed_from_and_branched(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    bring_model(page, make_tiny_model(tmp_path / "tiny", family="qwen2"))
    page.goto("/datasets")
    page.locator("input[type=file]").first.set_input_files(_write_rows(tmp_path / "herons.jsonl"))
    page.get_by_role("link", name="Fine-tune on this dataset").click()
    # The page of a dataset has a field of this name too.
    expect(page.get_by_role("heading", name="Fine-tune", level=1)).to_be_visible()
    page.get_by_label("Model", exact=True).select_option(label="tiny")
    page.get_by_label("Epochs", exact=True).fill(str(EPOCHS))
    page.get_by_label("Batch size").fill("4")
    page.get_by_label("Max sequence length").fill("64")
    page.locator("summary", has_text="Checkpoints and evaluation").click()
    page.get_by_label("Checkpoints to keep").fill("4")
    open_section(page, "Job name and project")
    page.get_by_label("Job name").fill("Herons")
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_role("heading", name="Herons", level=1)).to_be_visible()
    job = page.url

    # Three checkpoints, then a pause.
    open_tab(page, "Checkpoints")
    expect(page.get_by_role("button", name=re.compile("More actions for step")).nth(2)).to_be_visible(
        timeout=TIMEOUT_MS
    )
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
    page.reload()
    expect(page.get_by_role("button", name=re.compile("More actions for step")).nth(2)).to_be_visible()
    steps = _steps(page)
    assert steps == sorted(steps, reverse=True)
    newest, middle, oldest = steps[0], steps[1], steps[-1]

    # The mean of two is exported.
    for step in (newest, oldest):
        page.get_by_role("checkbox", name=f"Choose step {step:,}", exact=True).check()
    assert axe_violations(page) == []
    page.get_by_role("button", name="Average and export").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"of steps {oldest:,}, {newest:,}.")
    assert axe_violations(page) == []
    dialog.get_by_role("button", name="Export", exact=True).click()
    expect(page.get_by_text("The export is queued.")).to_be_visible()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)
    deadline = time.monotonic() + TIMEOUT_MS / 1_000
    while (export := _export(page, job))["status"] not in {"completed", "failed"}:
        assert time.monotonic() < deadline, export["status"]
        time.sleep(0.5)
    assert (export["status"], export["name"]) == ("completed", "Herons, mean of 2 checkpoints"), export

    # Two of them answer beside each other.
    page.get_by_role("link", name=f"Open step {newest:,} in playground").click()
    page.get_by_label("Your message").fill(QUESTION)
    choice = page.get_by_label("Compare with checkpoint")
    option = choice.locator("option", has_text=re.compile(rf"^Step {oldest:,}\b"))
    choice.select_option(value=option.get_attribute("value"))
    # Another conversation, with the text that was typed and not sent.
    expect(page.get_by_text("Both checkpoints answer side by side")).to_be_visible()
    page.get_by_label("Max tokens").fill("8")
    expect(page.get_by_label("Your message")).to_have_value(QUESTION)
    page.get_by_label("Your message").focus()
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=TIMEOUT_MS)
    page.keyboard.press("Enter")
    for step in (newest, oldest):
        answer = page.get_by_role("region", name=f"Answer of Step {step:,}", exact=True)
        expect(answer).to_have_attribute("aria-busy", "false", timeout=TIMEOUT_MS)
        expect(page.get_by_role("button", name=f"Copy the answer of Step {step:,}")).to_be_visible()
    assert axe_violations(page) == []

    # One is deleted.
    page.goto(f"{job}?tab=checkpoints")
    _choose(page, middle, "Delete")
    page.get_by_role("alertdialog").get_by_role("button", name="Delete checkpoint").click()
    expect(page.get_by_text(f"Checkpoint of step {middle:,} deleted.")).to_be_visible()
    expect(page.get_by_role("button", name=f"More actions for step {middle:,}", exact=True)).to_have_count(0)
    assert [step for step in steps if step != middle] == _steps(page)

    # A branch with another learning rate ends after two more steps; the first run stays as it was.
    _choose(page, oldest, "Branch with changed settings")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Job name").fill("Herons, slower")
    dialog.get_by_label("Learning rate").fill("0.00001")
    dialog.get_by_label("Total steps").fill(str(oldest + 2))
    assert axe_violations(page) == []
    dialog.get_by_role("button", name="Start branch").click()
    expect(page.get_by_role("heading", name="Herons, slower", level=1)).to_be_visible()
    expect(page.get_by_role("link", name="Open in playground")).to_be_visible(timeout=TIMEOUT_MS)
    open_tab(page, "Config")
    expect(page.get_by_role("tabpanel")).to_contain_text("0.00001")
    # A real config with a model and a dataset, beside what ran.
    expect(page.get_by_text("Packages (", exact=False)).to_be_visible()
    for (width, height), tallest in TALLEST.items():
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollHeight") <= tallest
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})

    # The first run goes on from its oldest checkpoint, which removes the newer ones.
    page.goto(f"{job}?tab=checkpoints")
    _choose(page, oldest, "Resume from here")
    dialog = page.get_by_role("alertdialog")
    expect(dialog).to_contain_text("Checkpoints of later steps are deleted.")
    dialog.get_by_role("button", name="Resume from here").click()
    expect(page.get_by_text(f"The job is queued. It resumes from step {oldest:,}.")).to_be_visible()
    open_tab(page, "Overview")
    started = page.get_by_text(f"The last attempt started from step {oldest:,}.")
    expect(started).to_be_visible(timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
