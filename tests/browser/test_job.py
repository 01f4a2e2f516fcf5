"""From a click to a model that transformers can load: one job, live, in a real browser."""

import json
import tarfile
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage, axe_violations
from tests.browser.people import choose_action, create_project, set_up
from tests.live_server import LiveServer

CONFIG = {
    "max_steps": 160,
    "epochs": 1000,
    "batch_size": 16,
    "checkpoint": {"every_steps": 40},
    "eval": {"every_steps": 40},
}
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 300
TIMEOUT_SECONDS = 300


def _job(page: Page) -> dict[str, object]:
    answer = page.request.get(f"/api/jobs/{page.url.rpartition('/')[2]}")
    return dict(answer.json())


def _wait_for_points(page: Page, count: int) -> None:
    """Points that this page got through its stream, without asking again."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while page.evaluate("window.livePoints || 0") < count:
        assert time.monotonic() < deadline, _job(page)
        page.wait_for_timeout(100)


_COUNT_LIVE_POINTS = """
const Original = window.EventSource;
window.livePoints = 0;
window.EventSource = class extends Original {
  constructor(...given) {
    super(...given);
    this.addEventListener("delta", (event) => {
      for (const series of JSON.parse(event.data).series ?? [])
        if (series.name === "train/loss") window.livePoints += series.x.length;
    });
  }
};
"""


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_job_is_started_watched_steered_paused_resumed_and_downloaded(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    page.add_init_script(_COUNT_LIVE_POINTS)
    set_up(page, live_app)
    (live_app.home / "uploads/corpus.txt").write_text(TEXT)
    project = create_project(page, "Hamlet", "0.001", "corpus.txt")

    page.goto(f"{project}/jobs/new")
    page.get_by_label("Job name").fill("First try")
    page.get_by_role("tab", name="JSON").click()
    page.get_by_label("Training config").fill(json.dumps(CONFIG))
    expect(page.get_by_label("Plan").get_by_text("This job fits")).to_be_visible()
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_role("heading", name="First try", level=1)).to_be_visible()

    _wait_for_points(page, 20)
    assert axe_violations(page) == []
    choose_action(page, "Settings")
    page.get_by_role("dialog").get_by_label("Learning rate").fill("0.0005")
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not any(mark["kind"] == "applied" for mark in _job(page)["summary"].get("marks", [])):  # type: ignore[attr-defined]
        assert time.monotonic() < deadline, _job(page)
        page.wait_for_timeout(100)

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=TIMEOUT_SECONDS * 1000)
    assert _job(page)["status"] == "paused"
    # A page that is closed and opened again shows the same job.
    page.reload()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("link", name="Open in playground")).to_be_visible(
        timeout=2 * TIMEOUT_SECONDS * 1000
    )
    job = _job(page)
    assert (job["status"], job["attempt"]) == ("completed", 2)

    with page.expect_download() as started:
        page.get_by_role("link", name="Download model").click()
    archive = tmp_path / "model.tar"
    started.value.save_as(archive)
    with tarfile.open(archive) as content:
        content.extractall(tmp_path / "model", filter="data")
    _load_with_transformers(next((tmp_path / "model").iterdir()))
    assert axe_violations(page) == []


def _load_with_transformers(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    written = model.generate(**tokenizer("To be", return_tensors="pt"), max_new_tokens=5, do_sample=False)
    assert tokenizer.decode(written[0]).startswith("To be")
