"""Fine-tuning from the browser: bring a model and a file, see the plan, start."""

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import DESKTOP, PHONE, TIMEOUT_MS, NewPage, axe_violations, flaws_on_every_screen
from tests.browser.people import bring_model, open_section, set_up
from tests.live_server import LiveServer
from tests.tiny_models import make_tiny_model

# Some of these tests need a worker.
SHARED_APP = True
# With a model and a dataset, and nothing opened.
TALLEST = {DESKTOP: 1_400, PHONE: 2_400}


def _examples(folder: Path) -> Path:
    path = folder / "pairs.jsonl"
    rows = [{"prompt": f"Where is key {n}?", "completion": f"Under stone {n}."} for n in range(40)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def _bring_model(page: Page, folder: Path) -> None:
    page.goto("/models")
    page.get_by_role("button", name="Add a model").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Upload").click()
    dialog.get_by_label("Choose a folder").set_input_files(folder)
    assert axe_violations(page) == []
    dialog.get_by_role("button", name="Upload model").click()
    expect(page.get_by_role("article", name="tiny").get_by_text("can be trained")).to_be_visible()


@pytest.mark.long
def test_a_model_and_a_file_become_a_training_job(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    _bring_model(page, make_tiny_model(tmp_path / "tiny", context_length=128))
    assert flaws_on_every_screen(page) == []

    page.get_by_role("link", name="Fine-tune tiny").click()
    plan = page.get_by_label("Plan")
    expect(plan).to_contain_text("Choose a dataset.")
    page.get_by_label("Upload a file").set_input_files(_examples(tmp_path))
    expect(plan.get_by_text("This job fits")).to_be_visible()
    expect(page.get_by_label("Max sequence length")).to_have_attribute("placeholder", "128")
    expect(page.get_by_label("Epochs", exact=True)).to_have_attribute("placeholder", "3")
    expect(page.get_by_label("Learning rate", exact=True)).to_have_attribute("placeholder", "2e-4")
    expect(page.get_by_role("radio", name=re.compile("Full"))).to_have_accessible_name(re.compile("MB|GB"))
    assert flaws_on_every_screen(page) == []

    open_section(page, "Backend")
    page.get_by_label("Training backend").select_option("unsloth")
    expect(plan).to_contain_text("This job cannot run with these settings")
    expect(page.get_by_role("form", name="Fine-tune").get_by_text("Unsloth needs").first).to_be_visible()
    assert flaws_on_every_screen(page) == []
    page.get_by_label("Training backend").select_option("engine")
    open_section(page, "Training examples")
    page.get_by_label("Packing").select_option("No")
    page.get_by_label("Epochs", exact=True).fill("1")
    open_section(page, "LoRA adapters")
    page.get_by_label("LoRA rank").fill("4")
    expect(plan.get_by_text("This job fits")).to_be_visible()

    page.get_by_role("tab", name="JSON").click()
    written = json.loads(page.get_by_label("Training config").input_value())
    assert written == {
        "method": "lora",
        "epochs": 1,
        "lora": {"rank": 4},
        "data": {"packing": False},
    }
    page.get_by_role("tab", name="Form").click()

    page.get_by_role("button", name="View train.py").click()
    script = page.get_by_role("dialog")
    expect(script.locator("pre")).to_contain_text("import")
    assert axe_violations(page) == []
    script.get_by_role("tab", name="config.json").click()
    expect(script.locator("pre")).to_contain_text('"packing": false')
    script.get_by_role("button", name="Close").click()

    page.get_by_role("button", name="Start training").first.click()
    page.wait_for_url(re.compile(r"/projects/[0-9a-f-]{36}/jobs/[0-9a-f-]{36}$"))
    expect(page.get_by_role("heading", name="tiny on pairs.jsonl")).to_be_visible()
    # A whole training, which a busy machine takes its time for.
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=10 * TIMEOUT_MS)


@pytest.mark.long
def test_the_form_is_short_and_can_be_started_from_anywhere(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    bring_model(page, make_tiny_model(tmp_path / "tiny"))
    page.goto("/datasets")
    page.locator("input[type=file]").first.set_input_files(_examples(tmp_path))
    expect(page.get_by_label("Preview", exact=True).locator("pre mark").first).to_be_visible()
    model, dataset = (
        page.request.get(f"/api/{kind}").json()["items"][0]["id"] for kind in ("models", "datasets")
    )
    heights = {}
    for size in TALLEST:
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.goto(f"/finetune?model={model}&dataset={dataset}")
        expect(page.get_by_label("Plan").get_by_text("This job fits")).to_be_visible()
        expect(page.get_by_label("Pre-flight", exact=True)).to_contain_text("40 of 40")
        heights[size] = page.evaluate("document.documentElement.scrollHeight")
        for part in ("top", "bottom"):
            page.evaluate(f"scrollTo(0, '{part}' === 'top' ? 0 : document.body.scrollHeight)")
            expect(page.get_by_role("button", name="Start training")).to_be_in_viewport(ratio=1)
    assert {size: height for size, height in heights.items() if height > TALLEST[size]} == {}

    # What is closed says its values.
    adapters = page.locator("summary", has_text="LoRA adapters")
    expect(adapters).to_contain_text("rank 16 · alpha 32")
    adapters.click()
    page.get_by_label("LoRA rank").fill("4")
    expect(adapters).to_contain_text("rank 4 · alpha 32")
    expect(adapters).to_contain_text("1 changed")
    page.get_by_role("button", name="Help: Batch size").click()
    expect(page.get_by_role("dialog")).to_contain_text("lower it if memory is short")
    assert axe_violations(page) == []


@pytest.mark.long
def test_what_is_not_filled_in_is_said_and_gets_the_focus(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    page.goto("/jobs/new")
    page.get_by_role("navigation", name="Type of job").get_by_role("link", name="Fine-tune").click()
    # The page before has a button of the same name.
    expect(page).to_have_url(re.compile(r"/finetune"))
    expect(page.get_by_role("option", name="Choose a model…")).to_be_attached()
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_label("Model", exact=True)).to_be_focused()
    expect(page.locator("form").get_by_text("Choose a dataset.")).to_be_visible()


@pytest.mark.long
def test_a_wrong_budget_starts_no_job(new_page: NewPage, live_app: LiveServer) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/jobs/new")
    page.get_by_label("New project name").fill("Anything")
    open_section(page, "Rent an instance")
    budget = page.get_by_label("Budget, in US dollars")
    budget.fill("5 dollars")
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_role("alert").filter(has_text="Rent an instance")).to_be_visible()
    # What cannot be planned is said in words of the form, and asked of nobody.
    with page.expect_response("**/api/plan"):
        page.get_by_label("Epochs", exact=True).fill("2")
    page.get_by_label("Epochs", exact=True).fill("two")
    expect(page.get_by_label("Plan", exact=True)).to_contain_text("Correct the field “Epochs”.")
    page.get_by_label("Epochs", exact=True).fill("2")
    budget.fill("5")
    page.get_by_role("button", name="Start training").first.click()
    page.wait_for_url(re.compile(r"/projects/[0-9a-f-]{36}/jobs/[0-9a-f-]{36}$"))


@pytest.mark.long
def test_a_link_to_a_deleted_model_asks_for_another(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    page.goto(f"/finetune?model={uuid4()}&dataset={uuid4()}")
    expect(page.get_by_label("Plan")).to_contain_text("Choose another model: this model no longer exists.")


@pytest.mark.long
def test_back_and_a_reload_bring_a_half_filled_form_back(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    model = page.get_by_label("Model", exact=True)
    epochs = page.get_by_label("Epochs", exact=True)

    def filled_in() -> None:
        expect(epochs).to_have_value("7")
        expect(model.locator("option:checked")).to_contain_text("SmolLM2-135M-Instruct")

    page.goto("/finetune")
    choice = model.get_by_role("option", name=re.compile("SmolLM2-135M-Instruct"))
    model.select_option(str(choice.get_attribute("value")))
    epochs.fill("7")
    page.get_by_role("link", name="Datasets").first.click()
    page.wait_for_url("**/datasets")
    page.go_back()
    filled_in()
    page.reload()
    filled_in()
    page.get_by_role("tab", name="JSON").click()
    page.get_by_label("Training config").fill('{"epochs": ')
    page.reload()
    expect(page.get_by_label("Training config")).to_have_value('{"epochs": ')
    # A link opens a new form.
    page.get_by_role("link", name="Datasets").first.click()
    page.get_by_role("link", name="Fine-tune").first.click()
    expect(epochs).to_have_value("")
    # Nobody finds it after the person who typed it.
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()
    assert not page.evaluate("Object.keys(sessionStorage).some((key) => key.startsWith('job draft'))")


@pytest.mark.long
def test_the_catalogue_is_narrowed_to_what_fits(new_page: NewPage, live_app: LiveServer) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/models")
    catalogue = page.get_by_role("table", name="Catalogue")
    rows = catalogue.get_by_role("row")
    page.get_by_role("button", name=re.compile("Show all")).click()
    everything = rows.count()
    page.get_by_label("Size").select_option("full")
    expect(rows.filter(has_text="70B")).to_have_count(0)
    assert 1 < rows.count() < everything
    page.get_by_label("Family").select_option("Qwen2.5")
    page.get_by_label("Search the catalogue").fill("0.5b instruct")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("Qwen2.5-0.5B-Instruct")


@pytest.mark.long
def test_a_hub_token_is_kept_replaced_and_removed(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    page.goto("/settings?tab=tokens")
    page.get_by_label("Token", exact=True).fill("hf_example")
    page.get_by_role("button", name="Save token").click()
    expect(page.get_by_text("saved", exact=True)).to_be_visible()
    expect(page.get_by_label("New token", exact=True)).to_have_value("")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("button", name="Remove token").click()
    expect(page.get_by_text("not set", exact=True)).to_be_visible()
