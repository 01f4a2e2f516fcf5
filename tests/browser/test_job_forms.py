"""What a form for a training sends: what a person typed, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage, axe_violations
from tests.browser.people import choose_action, create_project, set_up
from tests.live_server import LiveServer
from tests.tiny_models import make_tiny_model

# Keeps the body of every request that starts a training, as it leaves the page.
_WATCH = """
window.started = [];
const send = window.fetch;
window.fetch = async (...given) => {
  const request = new Request(...given);
  const starts = request.method === "POST" && new URL(request.url).pathname === "/api/jobs";
  if (starts) window.started.push(await request.clone().text());
  return send(request);
};
"""
TEXT = "To be, or not to be, that is the question. " * 500


def _write_folder(folder: Path) -> None:
    """As much of a model as a plan reads: nothing is trained here."""
    folder.mkdir()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "llama", **sizes, "vocab_size": 400, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps(config))


def _start(page: Page) -> dict[str, Any]:
    """Press the button; returns the body that was sent."""
    before = page.url
    page.get_by_role("button", name="Start training").first.click()
    page.wait_for_url(lambda address: re.search(r"/jobs/[0-9a-f-]{36}$", address) and address != before)
    body: dict[str, Any] = json.loads(page.evaluate("window.started.at(-1)"))
    return body


def _job(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.request.get(f"/api/jobs/{page.url.rpartition('/')[2]}").json()
    return found


def _used(page: Page) -> tuple[float, int, int]:
    config = _job(page)["config"]
    return config["learning_rate"], config["epochs"], config["batch_size"]


def _shows(page: Page, label: str, placeholder: str) -> None:
    field = page.get_by_label(label, exact=True)
    expect(field).to_have_attribute("placeholder", placeholder)
    expect(field).to_have_value("")


@pytest.mark.long
def test_a_model_folder_is_trained_with_the_rate_of_its_method_unless_one_is_typed(
    new_page: NewPage, server: LiveServer
) -> None:
    uploads = server.home / "uploads"
    _write_folder(uploads / "tiny")
    (uploads / "corpus.txt").write_text(TEXT)
    page = new_page()
    page.add_init_script(_WATCH)
    set_up(page, server)
    create_project(page, "Forms", data="corpus.txt")
    page.goto(f"{page.url}/jobs/new")
    _shows(page, "Learning rate", "0.001")
    _shows(page, "Epochs", "10")
    _shows(page, "Batch size", "32")

    page.get_by_label("Model", exact=True).select_option("Model folder…")
    _shows(page, "Learning rate", "2e-5")
    page.get_by_label("Model folder").fill("tiny")
    _shows(page, "Learning rate", "2e-5")
    _shows(page, "Epochs", "3")
    page.get_by_role("radio", name=re.compile("^LoRA")).check(force=True)
    _shows(page, "Learning rate", "2e-4")
    _shows(page, "LoRA rank", "16")
    page.get_by_role("radio", name=re.compile("^Full")).check(force=True)
    _shows(page, "Learning rate", "2e-5")
    assert axe_violations(page) == []

    body = _start(page)
    assert body["config"] == {"model": {"path": "tiny"}}
    assert set(body) == {"config", "project_id"}
    assert _used(page) == (2e-5, 3, 8)


@pytest.mark.long
def test_a_job_that_is_changed_and_started_again_keeps_what_was_typed_and_nothing_else(
    new_page: NewPage, server: LiveServer
) -> None:
    (server.home / "uploads" / "corpus.txt").write_text(TEXT)
    page = new_page()
    page.add_init_script(_WATCH)
    set_up(page, server)
    create_project(page, "Again", data="corpus.txt")
    page.goto(f"{page.url}/jobs/new")
    page.get_by_label("Batch size", exact=True).fill("4")
    page.get_by_label("Host memory (GB)").fill("1")
    assert _start(page)["config"] == {"batch_size": 4}
    assert _used(page) == (1e-3, 10, 4)

    page.get_by_role("button", name="Cancel", exact=True).first.click()
    expect(page.get_by_role("alertdialog").get_by_role("button")).to_have_text(["Keep job", "Cancel job"])
    page.get_by_role("button", name="Cancel job").click()
    choose_action(page, "Duplicate and edit")
    expect(page.get_by_label("Batch size", exact=True)).to_have_value("4")
    expect(page.get_by_label("Host memory (GB)")).to_have_value("1")
    _shows(page, "Learning rate", "0.001")
    _shows(page, "Epochs", "10")
    assert page.get_by_text(re.compile(r"\d changed")).count() == 0
    page.get_by_label("Epochs", exact=True).fill("2")
    body = _start(page)
    assert body["config"] == {"batch_size": 4, "epochs": 2}
    assert body["host_memory"] == 1


# Making a model imports torch, which a busy machine takes its time for.
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_fine_tuning_sends_no_figure_that_nobody_typed(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    page.add_init_script(_WATCH)
    set_up(page, live_app)
    page.goto("/models")
    page.get_by_role("button", name="Add a model").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("tab", name="Upload").click()
    dialog.get_by_label("Choose a folder").set_input_files(make_tiny_model(tmp_path / "tiny"))
    dialog.get_by_role("button", name="Upload model").click()
    expect(page.get_by_role("article", name="tiny").get_by_text("can be trained")).to_be_visible()
    rows = [{"prompt": f"Where is key {n}?", "completion": f"Under stone {n}."} for n in range(40)]
    examples = tmp_path / "pairs.jsonl"
    examples.write_text("\n".join(json.dumps(row) for row in rows))
    page.get_by_role("link", name="Fine-tune tiny").click()
    _shows(page, "Learning rate", "2e-4")
    page.get_by_label("Upload a file").set_input_files(examples)
    for label, placeholder in (
        ("Learning rate", "2e-4"),
        ("Epochs", "3"),
        ("Batch size", "8"),
        ("Max sequence length", "512"),
    ):
        _shows(page, label, placeholder)
    # The form is complete only when the server has read the file.
    expect(page.get_by_label("Plan").get_by_text("This job fits")).to_be_visible()
    assert _start(page)["config"] == {"method": "lora"}


def test_a_typed_value_leaves_the_label_of_its_field_where_it_was(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page((1280, 800))
    set_up(page, server)
    page.goto("/finetune")
    # The default of a field with a value stands beside its label, where there is room for both.
    for label, value in (("Learning rate", "0.01"), ("Max sequence length", "64")):
        field = page.get_by_label(label, exact=True)
        empty = field.bounding_box()
        field.fill(value)
        expect(field).to_have_accessible_description(re.compile("default: "))
        assert field.bounding_box() == empty
