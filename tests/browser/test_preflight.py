"""Before a training starts: what the dataset is for the model, and files that need help to be read."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import open_section, set_up
from tests.live_server import LiveServer
from tests.tiny_models import make_tiny_model

# A worker inspects what is uploaded.
SHARED_APP = True
STEPS = "xpath=.//dt[normalize-space()='Steps']/following-sibling::dd[1]"


def _upload(page: Page, path: Path) -> None:
    page.goto("/datasets")
    page.wait_for_load_state("networkidle")
    page.get_by_label("Upload files").set_input_files(path)
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}$"))


@pytest.mark.long
def test_the_form_counts_rows_steps_and_unused_columns_before_the_start(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/models")
    page.get_by_role("button", name="Add a model").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Upload").click()
    dialog.get_by_label("Choose a folder").set_input_files(make_tiny_model(tmp_path / "tiny"))
    dialog.get_by_role("button", name="Upload model").click()
    expect(page.get_by_role("article", name="tiny").get_by_text("can be trained")).to_be_visible()
    page.get_by_role("link", name="Fine-tune tiny").click()
    card = page.get_by_label("Pre-flight", exact=True)
    expect(card).to_contain_text("Choose a dataset.")
    rows = [{"prompt": f"Key {n}?", "completion": f"Stone {n}.", "source": "web"} for n in range(120)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, {"prompt": "no answer"}]))
    page.get_by_label("Upload a file").set_input_files(path)
    expect(card).to_contain_text("120 of 121")
    findings = card.get_by_label("Findings")
    expect(findings).to_contain_text("Columns not used")
    expect(findings).to_contain_text("source")
    expect(findings).to_contain_text("Rows not used")
    plan = page.get_by_label("Plan")
    expect(plan).to_contain_text("counted by the pre-flight")
    expect(plan.locator(STEPS)).to_have_text(card.locator(STEPS).inner_text())

    # A small dataset counts as much as its weight says.
    more = tmp_path / "identity.jsonl"
    more.write_text("\n".join(json.dumps({"prompt": f"Who? {n}", "completion": "I."}) for n in range(10)))
    open_section(page, "Validation and more datasets")
    page.get_by_role("button", name="Mix in another dataset").click()
    expect(card).to_contain_text("Choose the dataset to mix in.")
    page.get_by_label("Upload a file").set_input_files(more)
    page.get_by_label("Mixed dataset 1").get_by_label("Weight").fill("6")
    mix = card.get_by_label("Mix", exact=True)
    expect(mix).to_contain_text(re.compile(r"identity.jsonl\s*\d+ examples \(weight 6\)"))
    expect(card).to_contain_text("130 of 131")
    expect(plan.locator(STEPS)).to_have_text(card.locator(STEPS).inner_text())
    assert flaws_on_every_screen(page) == []


@pytest.mark.long
def test_a_file_in_another_encoding_is_mended_and_nested_answers_are_mapped(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    # Japanese in UTF-16 without a byte order mark: nothing tells it from a binary file.
    path = tmp_path / "tasks.jsonl"
    row = {
        "instruction": "挨拶をしてください。" * 4,
        "instances": [{"input": "", "output": "こんにちは。" * 4}],
    }
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for _ in range(3))
    path.write_bytes(text.encode("utf-16-le"))
    _upload(page, path)
    expect(page.get_by_text("This dataset cannot be used.")).to_be_visible()
    page.get_by_label("Encoding", exact=True).last.select_option("utf-16-le")
    page.get_by_role("button", name="Read again").click()
    mapping = page.get_by_role("form", name="Column mapping")
    expect(mapping).to_be_visible()
    mapping.get_by_label("Format").select_option("alpaca")
    mapping.get_by_label("Output column").select_option("instances[0].output")
    mapping.get_by_role("button", name="Apply format").click()
    expect(page.get_by_label("Overview")).to_contain_text("Usable examples")
    expect(page.get_by_label("Overview")).to_contain_text("3")
    assert flaws_on_every_screen(page) == []
