"""The card of a running step in a real browser, through Metaflow's own card server."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Frame, Page, expect

from tests.metaflow.conftest import TIMEOUT, Flow, on_s3, wait_until
from tests.traincard_mirror.conftest import S3Server

pytestmark = pytest.mark.xdist_group("metaflow")

_WATCH = """() => {
  const update = window.metaflow_card_update;
  window.seen = [];
  window.metaflow_card_update = (data) => {
    window.seen.push({ made_at: data.made_at, live: data.live, step: data.status.step });
    update(data);
  };
}"""


def open_viewer(chromium: Browser, address: str) -> tuple[Page, list[str]]:
    page = chromium.new_page()
    page.set_default_timeout(TIMEOUT * 1000)
    loads: list[str] = []
    # The viewer's own page asks for a font elsewhere.
    page.route("**/*", lambda route: route.continue_() if "127.0.0.1" in route.request.url else route.abort())
    page.on("framenavigated", lambda frame: loads.append(frame.url) if "/card/" in frame.url else None)
    page.goto(address)
    return page, loads


def card_frame(page: Page, flow: Flow) -> Frame:
    """The frame of the step's training card; the viewer may have chosen another card first."""
    wanted = next(
        path.stem.split("-")[-1] for path in flow.cards_root.glob("**/cards/train-traincard-*.html")
    )
    option = page.locator(f'#selector option[value$="{wanted}"]')
    option.wait_for(state="attached")
    choice = option.get_attribute("value") or ""
    page.select_option("#selector", choice)
    page.frame_locator("#card-frame").locator("#status").wait_for()
    frame = next(frame for frame in page.frames if choice in frame.url)
    wait_until(lambda: frame.evaluate("typeof window.metaflow_card_update === 'function'"))
    return frame


def _updates(frame: Frame, count: int) -> list[dict[str, Any]]:
    """The first updates that an open page took in, each counted once."""
    frame.evaluate(_WATCH)
    # Asked from outside: the page's policy lets nobody evaluate code in it.
    wait_until(lambda: frame.evaluate("new Set(window.seen.map((one) => one.made_at)).size") >= count)
    seen = {one["made_at"]: one for one in frame.evaluate("window.seen")}
    return [seen[key] for key in sorted(seen)]


@contextmanager
def training(flow: Flow, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A step that trains until the file is there: a browser takes its time on a busy machine."""
    seen_enough = flow.folder / "seen-enough"
    with flow.start("run", "--until", str(seen_enough), *options) as running:
        try:
            yield running, seen_enough
        finally:
            seen_enough.touch()


def _watch_to_the_end(
    chromium: Browser, flow: Flow, running: subprocess.Popen[str], seen_enough: Path
) -> None:
    wait_until(lambda: list(flow.cards_root.glob("**/cards/train-traincard-*.html")))
    with flow.server() as address:
        page, loads = open_viewer(chromium, address)
        frame = card_frame(page, flow)
        before = len(loads)
        seen = _updates(frame, 3)
        expect(frame.locator("h1 .badge")).to_have_text("Running")
        assert len(loads) == before, "the page was loaded again instead of updated in place"
        # The viewer may come too late for one of them, so the time is shared among those there were.
        updates = seen[-1]["live"]["updates"] - seen[0]["live"]["updates"]
        assert 3 <= (seen[-1]["made_at"] - seen[0]["made_at"]) / updates <= 5, seen
        assert seen[-1]["step"] > (seen[0]["step"] or 0)
        seen_enough.touch()
        said, _ = running.communicate(timeout=TIMEOUT)
        assert running.returncode == 0, said
        expect(page.frame_locator("#card-frame").locator("h1 .badge")).to_have_text(
            "Completed", timeout=TIMEOUT * 1000
        )
        page.close()


@pytest.mark.long
def test_a_running_step_updates_its_card_in_place_every_few_seconds(
    chromium: Browser, tmp_path: Path
) -> None:
    flow = Flow("training", tmp_path)
    with training(flow) as (running, seen_enough):
        _watch_to_the_end(chromium, flow, running, seen_enough)


@pytest.mark.long
def test_a_failing_step_shows_its_failure_on_the_open_page(chromium: Browser, tmp_path: Path) -> None:
    flow = Flow("training", tmp_path)
    with training(flow, "--fail", "always") as (running, seen_enough):
        wait_until(lambda: list(flow.cards_root.glob("**/cards/train-traincard-*.html")))
        with flow.server() as address:
            page, loads = open_viewer(chromium, address)
            frame = card_frame(page, flow)
            before = len(loads)
            seen_enough.touch()
            failure = frame.locator("#failure")
            expect(failure).to_contain_text("MemoryError", timeout=60_000)
            expect(failure).to_contain_text("Likely cause: the machine ran out of memory")
            expect(failure).to_contain_text("cannot allocate memory for the batch")
            expect(failure).to_contain_text("train/loss")
            assert len(loads) == before
            page.close()
        running.communicate(timeout=120)
        assert running.returncode != 0


@pytest.mark.long
def test_a_step_with_an_s3_datastore_shows_its_live_card(
    chromium: Browser, tmp_path: Path, s3: S3Server
) -> None:
    flow = Flow("training", tmp_path, **on_s3(s3))
    flow.cards_root = s3.folder / "bucket/metaflow/mf.cards"
    with training(flow) as (running, seen_enough):
        _watch_to_the_end(chromium, flow, running, seen_enough)
    stored = list((s3.folder / "bucket/metaflow/TrainingFlow").glob("*/start/*/traincard/*"))
    assert {"events.jsonl", "latest.json"} <= {path.name for path in stored}
