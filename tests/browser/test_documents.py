"""From a folder of PDFs to a tuned model that answers: passages, questions, training, playground."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage, axe_violations, flaws_on_every_screen
from tests.browser.people import bring_model, open_section, set_up
from tests.chat_endpoint import FakeEndpoint, serving
from tests.documents import encrypt_pdf, make_docx, make_pdf
from tests.live_server import LiveServer
from tests.tiny_models import make_tiny_model

# Some of these tests need a worker.
SHARED_APP = True

QUESTION, ANSWER = "What is the password?", "The password is seven blue herons."
TIMEOUT_MS = 120_000


def _write_pdfs(folder: Path, files: int = 6, pages: int = 20) -> Path:
    """A handbook in several PDFs, with a header and a page number on each page."""
    folder.mkdir()
    for file in range(files):
        numbers = range(file * pages + 1, (file + 1) * pages + 1)
        content = [
            [
                "Handbook of the lighthouse",
                f"Room {room} of the lighthouse has a door of oak that was made in the year {1700 + room},",
                f"and whoever stands before door {room} is asked for the password. {ANSWER}",
                f"Page {number}",
            ]
            for number, room in enumerate(numbers, 1)
        ]
        (folder / f"part-{file + 1}.pdf").write_bytes(make_pdf(*content))
    (folder / "locked.pdf").write_bytes(encrypt_pdf(make_pdf(["Nothing."]), "closed"))
    (folder / "notes.xlsx").write_bytes(b"x")
    return folder


def _upload_folder(page: Page, folder: Path, length: str = "200") -> None:
    page.goto("/datasets")
    page.get_by_role("button", name="From documents").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Choose a folder").set_input_files(folder)
    dialog.get_by_label("Passage length").fill(length)
    assert axe_violations(page) == []
    dialog.get_by_role("button", name="Upload documents").click()
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}$"))


@pytest.mark.long
def test_a_folder_of_documents_is_shown_as_passages_beside_their_source(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    folder = _write_pdfs(tmp_path / "handbook", files=2, pages=3)
    words = "Every lamp is cleaned on Monday with warm water and a soft brush, before the sun goes down."
    (folder / "lamps.docx").write_bytes(make_docx((1, "Lamps"), (2, "Cleaning"), (0, words)))
    (folder / "guide.md").write_text(f"# Boats\n\n## Oars\n\n{words.replace('lamp', 'oar')}\n")
    page = new_page()
    set_up(page, live_app)
    _upload_folder(page, folder)
    documents = page.get_by_label("Documents", exact=True).first
    expect(documents).to_contain_text("5 documents · 6 pages · 8 passages of at most 200 characters")
    expect(documents.get_by_role("row", name=re.compile("locked.pdf"))).to_contain_text("encrypted")
    preview = page.get_by_role("region", name="Preview", exact=True)
    expect(preview.get_by_text("handbook/guide.md · Boats › Oars · passage 1")).to_be_visible()
    expect(preview.get_by_text("handbook/part-1.pdf · page 1 · passage 1")).to_be_visible()
    expect(preview.get_by_role("listitem").last).to_contain_text("Room 3 of the lighthouse")
    expect(preview).not_to_contain_text("Handbook of")
    assert flaws_on_every_screen(page) == []

    documents.get_by_role("button", name="Change passage length").click()
    documents.get_by_role("textbox", name="Passage length").fill("1000")
    documents.get_by_role("button", name="Cut again").click()
    expect(documents).to_contain_text("4 passages of at most 1,000 characters")
    expect(preview.get_by_text("handbook/part-1.pdf · pages 1–3 · passage 1")).to_be_visible()

    documents.get_by_role("button", name="Write questions").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Cost")).to_contain_text("4 requests for up to 8 pairs")
    dialog.get_by_label("Most tokens").fill("2000")
    expect(dialog.get_by_label("Cost")).to_contain_text("at most 2,000 tokens")
    dialog.get_by_role("button", name="Start writing").click()
    expect(dialog.get_by_text("Enter the address")).to_be_visible()
    assert flaws_on_every_screen(page) == []
    dialog.get_by_label("Written by").select_option("playground")
    expect(dialog.get_by_text("Open a model in the playground first.")).to_be_visible()


def _order_questions(page: Page, endpoint: FakeEndpoint) -> None:
    page.get_by_role("button", name="Write questions").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Endpoint").fill(endpoint.address)
    dialog.get_by_label("Model", exact=True).fill("writer")
    expect(dialog.get_by_label("Cost")).to_contain_text("120 requests for up to 240 pairs")
    dialog.get_by_role("button", name="Start writing").click()


def _pairs(passage: str) -> str:
    room = re.search(r"Room (\d+)", passage)
    # A model that talks instead of answering.
    if room is None or ANSWER not in passage or room[1] == "7":
        return "Certainly! Here are your questions."
    asked = (QUESTION, f"Room {room[1]}: {QUESTION}")
    pairs = ", ".join(f'{{"question": "{question}", "answer": "{ANSWER}"}}' for question in asked)
    return f'{{"pairs": [{pairs}]}}'


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_folder_of_pdfs_becomes_a_tuned_model_that_answers_in_the_playground(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    bring_model(page, make_tiny_model(tmp_path / "tiny"))
    _upload_folder(page, _write_pdfs(tmp_path / "handbook"))
    expect(page.get_by_label("Documents", exact=True).first).to_contain_text("120 pages · 120 passages")
    with serving() as endpoint:
        endpoint.answer = _pairs
        endpoint.gate.clear()
        _order_questions(page, endpoint)
        questions = page.get_by_label("Questions", exact=True)
        expect(questions.get_by_text("The model is writing questions.")).to_be_visible()
        questions.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("The model wrote no usable pair. Stopped on request.")).to_be_visible()
        endpoint.gate.set()
        questions.get_by_role("button", name=re.compile("Continue with")).click()
        expect(questions).to_contain_text("120 of 120 passages", timeout=TIMEOUT_MS)
    preview = page.get_by_role("region", name="Preview", exact=True)
    expect(preview.locator("pre mark", has_text=ANSWER).first).to_be_visible()
    expect(preview.get_by_text("handbook/part-1.pdf · page 1 · passage 1").first).to_be_visible()
    preview.get_by_text("Show the passage").first.click()
    expect(preview.get_by_text("has a door of oak").first).to_be_visible()
    expect(page.get_by_role("table", name="Rejected answers")).to_contain_text("The answer is not JSON.")
    assert flaws_on_every_screen(page) == []

    page.get_by_role("link", name="Fine-tune on this dataset").click()
    # The preview of the page before has a field of the same name.
    expect(page.get_by_role("heading", name="Fine-tune", level=1)).to_be_visible()
    page.get_by_label("Model", exact=True).select_option(label="tiny")
    page.get_by_label("Epochs", exact=True).fill("4")
    page.get_by_label("Learning rate", exact=True).fill("0.01")
    page.get_by_label("Batch size").fill("4")
    page.get_by_label("Max sequence length").fill("64")
    expect(page.get_by_label("Plan").get_by_text("This job fits")).to_be_visible()
    open_section(page, "Job name and project")
    page.get_by_label("Job name").fill("Lighthouse")
    page.get_by_role("button", name="Start training").first.click()
    link = page.get_by_role("link", name="Open in playground")
    expect(link).to_be_visible(timeout=2 * TIMEOUT_MS)
    link.click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("40")
    page.get_by_label("Your message").fill(QUESTION)
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=TIMEOUT_MS)
    page.keyboard.press("Enter")
    tuned = page.get_by_role("region", name="Answer of Tuned", exact=True)
    expect(tuned).to_contain_text(ANSWER, timeout=TIMEOUT_MS)
