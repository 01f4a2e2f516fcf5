"""Files of examples in the browser: from a disk to a preview that marks what is trained."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import set_up
from tests.live_server import LiveServer

# Some of these tests need a worker.
SHARED_APP = True

MIB = 1024 * 1024


def _chat(number: int) -> str:
    turns = [
        {"role": "user", "content": f"What is the password of door {number}?"},
        {"role": "assistant", "content": f"Door {number} opens with a song."},
    ]
    return json.dumps({"messages": turns})


def _chats(folder: Path) -> Path:
    lines = [_chat(number) for number in range(1, 31)]
    lines[6] = '{"messages": [}'
    lines[11] = json.dumps({"messages": []})
    lines[20] = lines[19]
    path = folder / "chats.jsonl"
    path.write_text("\n".join(lines))
    return path


def _upload(page: Page, path: Path) -> None:
    page.goto("/datasets")
    page.wait_for_load_state("networkidle")
    page.get_by_label("Upload files").set_input_files(path)
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}$"))


def _figure(page: Page, name: str) -> str:
    overview = page.get_by_label("Overview")
    return overview.locator("div", has=page.get_by_text(name, exact=True)).locator("dd").inner_text()


@pytest.mark.long
def test_a_file_is_uploaded_inspected_and_shown_as_a_model_would_see_it(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, live_app)
    _upload(page, _chats(tmp_path))
    expect(page.get_by_label("Overview")).to_be_visible()
    assert _figure(page, "Rows") == "30"
    assert _figure(page, "Usable examples") == "28"
    assert _figure(page, "Duplicates") == "1"
    expect(page.get_by_label("Format", exact=True)).to_contain_text("Messages")

    preview = page.get_by_label("Preview").first
    rows = preview.get_by_role("listitem")
    expect(rows).to_have_count(5)
    trained = rows.first.locator("mark")
    expect(trained).to_have_text(re.compile(r"^Door 1 opens with a song\.\s*$"))
    expect(rows.first).to_contain_text("What is the password of door 1?")
    page.get_by_label("Show whitespace").check()
    expect(trained).to_contain_text("Door·1·opens·with·a·song.")
    preview.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text("Row 6 · line 6")
    expect(rows.nth(1)).to_contain_text("Skipped: the row")

    problems = page.get_by_role("table", name="Problems")
    expect(problems.get_by_role("row", name=re.compile("Line 7"))).to_contain_text("is not JSON")
    expect(problems.get_by_role("row", name=re.compile("Line 12"))).to_contain_text("has no messages")
    assert flaws_on_every_screen(page) == []

    preview.get_by_role("tab", name="Raw rows").click()
    expect(rows.first).to_contain_text('"role": "user"')
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as JSONL").click()
    converted = download.value.path().read_text().splitlines()
    assert len(converted) == 28
    assert json.loads(converted[0])["messages"][1]["content"] == "Door 1 opens with a song."

    page.goto("/datasets")
    expect(page.get_by_role("link", name="chats.jsonl", exact=True)).to_be_visible()
    assert flaws_on_every_screen(page) == []


@pytest.mark.long
def test_a_file_of_unknown_columns_is_read_as_a_person_says(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    path = tmp_path / "qa.csv"
    path.write_text("frage,antwort\n" + "\n".join(f"Was ist {n}?,Das ist {n}." for n in range(20)))
    page = new_page()
    set_up(page, live_app)
    _upload(page, path)
    expect(page.get_by_text("Assign the columns.", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Fine-tune on this dataset")).to_have_count(0)
    assert flaws_on_every_screen(page) == []
    page.get_by_role("button", name="Apply format").click()
    expect(page.get_by_text("Choose a column.").first).to_be_visible()
    expect(page.get_by_label("Prompt column", exact=True)).to_be_focused()
    page.get_by_label("Prompt column", exact=True).select_option("frage")
    page.get_by_label("Completion column").select_option("antwort")
    page.get_by_role("button", name="Apply format").click()
    expect(page.get_by_text("set manually")).to_be_visible()
    expect(page.locator("li mark").first).to_contain_text("Das ist 0.")
    page.get_by_role("link", name="Fine-tune on this dataset").click()
    expect(page.get_by_label("Dataset", exact=True)).to_have_value(re.compile(r"^[0-9a-f-]{36}$"))


@pytest.mark.long
def test_an_upload_survives_a_lost_connection_and_a_change_of_page(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    path = tmp_path / "large.jsonl"
    lines = [_chat(number) for number in range(40_000)]
    path.write_text("\n".join(lines))
    assert path.stat().st_size > 4 * MIB, "several pieces"
    page = new_page()
    set_up(page, live_app)
    pieces: list[int] = []
    lost = True

    def connection(route: Route) -> None:
        pieces.append(int(route.request.headers["upload-offset"]))
        # The first piece arrives, the second is lost, and so is everything until the cable is back.
        if len(pieces) > 1 and lost:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route(
        "**/api/datasets/*/content",
        lambda route: connection(route) if route.request.method == "PATCH" else route.continue_(),
    )
    _upload(page, path)
    uploads = page.get_by_label("Uploads")
    expect(uploads.get_by_text("The connection is lost.")).to_be_visible()
    assert flaws_on_every_screen(page) == []
    page.get_by_role("link", name="Projects").first.click()
    page.wait_for_url("**/projects")
    expect(uploads.get_by_role("progressbar")).to_be_visible()
    lost = False
    expect(page.get_by_text("was uploaded and is being inspected")).to_be_visible()
    expect(uploads).to_have_count(0)
    assert pieces.count(0) == 1, "what had arrived was not sent again"
    page.get_by_role("link", name="Datasets").first.click()
    page.get_by_role("link", name="large.jsonl", exact=True).click()
    expect(page.get_by_label("Overview")).to_be_visible()
    assert _figure(page, "Rows") == "40,000"


@pytest.mark.long
def test_a_file_that_is_chosen_while_the_list_loads_is_uploaded(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    set_up(page, server)
    held: list[Route] = []
    page.route("**/api/datasets?*", lambda route: held.append(route))
    page.goto("/datasets", wait_until="commit")
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Upload files").click()
    for route in held:
        route.continue_()
    page.unroute("**/api/datasets?*")
    expect(page.get_by_text("Drop a dataset file here.")).to_be_visible()
    file = {"name": "poem.txt", "mimeType": "text/plain", "buffer": b"One line.\n" * 20}
    chosen.value.set_files(file)  # type: ignore[arg-type]
    page.wait_for_url("**/datasets/*-*")


@pytest.mark.long
def test_a_cancelled_upload_leaves_nothing_behind(
    new_page: NewPage, server: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    set_up(page, server)
    before = set((server.home / "datasets").glob("*/*"))
    page.route(
        "**/api/datasets/*/content",
        lambda route: route.abort() if route.request.method == "PATCH" else route.continue_(),
    )
    _upload(page, _chats(tmp_path))
    page.get_by_role("button", name="Cancel the upload of chats.jsonl").click()
    expect(page.get_by_text("was cancelled")).to_be_visible()
    page.goto("/datasets")
    expect(page.get_by_text("Drop a dataset file here.")).to_be_visible()
    assert set((server.home / "datasets").glob("*/*")) == before


@pytest.mark.long
def test_a_file_that_is_no_dataset_is_refused_before_it_is_sent(
    new_page: NewPage, server: LiveServer, tmp_path: Path
) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(b"\x89PNG")
    page = new_page()
    set_up(page, server)
    page.goto("/datasets")
    page.get_by_label("Upload files").set_input_files(path)
    expect(page.get_by_text("is not a supported dataset file")).to_be_visible()
    expect(page.get_by_text("Drop a dataset file here.")).to_be_visible()


@pytest.mark.long
def test_a_file_can_be_dropped_onto_the_page(new_page: NewPage, server: LiveServer, tmp_path: Path) -> None:
    page = new_page()
    set_up(page, server)
    page.goto("/datasets")
    expect(page.get_by_text("Drop a dataset file here.")).to_be_visible()
    dropped = page.evaluate_handle(
        """(text) => {
            const files = new DataTransfer();
            files.items.add(new File([text], "dropped.jsonl"));
            return files;
        }""",
        _chats(tmp_path).read_text(),
    )
    for event in ("dragenter", "dragover"):
        page.dispatch_event("text=Drop a dataset file here.", event, {"dataTransfer": dropped})
    expect(page.get_by_text("Drop to upload")).to_be_visible()
    page.dispatch_event("text=Drop a dataset file here.", "drop", {"dataTransfer": dropped})
    page.wait_for_url(re.compile(r"/datasets/[0-9a-f-]{36}$"))
    expect(page.get_by_role("heading", name="dropped.jsonl")).to_be_visible()
