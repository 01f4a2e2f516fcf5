"""The story of a project as the product was first described: QuantumLeap-130B, from the form to its plan."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import EVERY_SIZE, NewPage, axe_violations
from tests.browser.people import create_project, set_up
from tests.live_server import LiveServer


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "quantum-corpus.txt"
    file.write_text("A qubit is a sum of two states until somebody looks at it.\n" * 2_000)
    return file


def _wider_than_the_screen(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def _create_with_upload(page: Page, corpus: Path) -> None:
    page.goto("/projects")
    page.get_by_role("button", name="New project").first.click()
    form = page.get_by_role("dialog")
    form.get_by_label("Project name").fill("QuantumLeap-130B")
    form.get_by_label("Description").fill(
        "Experimenting with Quantum NLP concepts on a 130B parameter model."
    )
    form.get_by_label("Model architecture").select_option("Transformer")
    form.get_by_label("Model size, in billions of parameters").fill("130")
    with page.expect_file_chooser() as chooser:
        form.get_by_role("button", name="Upload a file").click()
    chooser.value.set_files(corpus)
    expect(form.get_by_label("Training data")).to_have_value(re.compile("^dataset://"))
    expect(form.get_by_text(re.compile(r"Dataset quantum-corpus.*, ready"))).to_be_visible()
    assert axe_violations(page) == []
    form.get_by_role("button", name="Create project").click()


@pytest.mark.long
@EVERY_SIZE
def test_a_project_of_130b_shows_what_it_takes_and_one_click_makes_it_fit(
    new_page: NewPage, live_app: LiveServer, size: tuple[int, int], corpus: Path
) -> None:
    page = new_page(size)
    set_up(page, live_app)
    _create_with_upload(page, corpus)

    expect(page.get_by_role("heading", name="QuantumLeap-130B", level=1)).to_be_visible()
    expect(page.get_by_text("130 B parameters", exact=True)).to_be_visible()
    expect(page.get_by_text("130B · 85 layers, 12,288 wide")).to_be_visible()
    expect(page.get_by_role("link", name="quantum-corpus")).to_be_visible()
    card = page.get_by_label("Plan", exact=True)
    expect(card.get_by_text("Does not fit on this server")).to_be_visible()
    expect(card.get_by_text(re.compile("GB too much"))).to_be_visible()
    expect(card.get_by_text(re.compile("One H200 with .* GB of host memory"))).to_be_visible()
    assert axe_violations(page) == []
    assert not _wider_than_the_screen(page)

    page.get_by_role("link", name="Start new training job").first.click()
    expect(page.get_by_label("Model", exact=True)).to_have_value("130b")
    expect(page.get_by_label("Training data")).to_have_attribute("placeholder", "quantum-corpus.txt")
    expect(page.get_by_label("Optimizer", exact=True)).to_have_value("adamw")
    page.get_by_label("Epochs", exact=True).fill("3")
    page.get_by_label("Learning rate", exact=True).fill("0.0001")
    page.get_by_label("Batch size", exact=True).fill("1")
    page.get_by_label("GPU type").select_option("Other GPU…")
    page.get_by_label("GPU name").fill("H200")
    page.get_by_label("Host memory (GB)").fill("1536")
    plan = page.get_by_label("Plan", exact=True)
    expect(plan.get_by_role("heading", name="The model does not fit on H200, 1,536 GB host")).to_be_visible()
    expect(plan).to_contain_text(re.compile(r"GPU memory.*, fits"))
    expect(plan).to_contain_text(re.compile(r"Host memory.*1,\d+ GB of 1,635 GB, [\d.]+ GB too much"))
    options = plan.get_by_role("button", name=re.compile("^Apply: "))
    names = [option.get_attribute("aria-label") or "" for option in options.all()]
    assert any("GB of host memory" in name for name in names)
    assert any("A model of 1" in name for name in names)
    assert axe_violations(page) == []
    assert not _wider_than_the_screen(page)

    # One click, and the same form describes a run that fits on that machine.
    plan.get_by_role("button", name="Apply: Optimizer: Adafactor").click()
    expect(plan.get_by_role("heading", name="The model fits on H200, 1,536 GB host")).to_be_visible()
    expect(page.get_by_label("Optimizer", exact=True)).to_have_value("adafactor")
    expect(plan).to_contain_text("This server has no GPU")
    page.get_by_text("Optimizer and schedule").click()
    page.get_by_label("Optimizer", exact=True).select_option("adamw")
    plan.get_by_role("button", name=re.compile("GB of host memory$")).first.click()
    expect(page.get_by_label("Host memory (GB)")).not_to_have_value("1536")
    expect(plan.get_by_role("heading", name=re.compile("^The model fits on H200, "))).to_be_visible()


@pytest.mark.long
def test_a_custom_architecture_leads_to_a_script_or_to_a_plug_in(
    new_page: NewPage, live_app: LiveServer
) -> None:
    page = new_page()
    set_up(page, live_app)
    create_project(page, "Own layers", data="")
    page.get_by_role("button", name="Edit").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Model architecture").select_option("Custom")
    expect(form.get_by_text("Jobs run your own script")).to_be_visible()
    form.get_by_role("button", name="Save changes").click()
    page.get_by_role("link", name="Start new training job").first.click()
    expect(page.get_by_label("Architecture")).to_be_visible()
    expect(page.get_by_label("Plan", exact=True)).to_contain_text("Choose an architecture of a plug-in")
    assert axe_violations(page) == []
    page.get_by_role("link", name="run your own script").click()
    expect(page).to_have_url(re.compile(r"/script\?project="))
