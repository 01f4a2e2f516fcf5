"""The story of the document that asked for TrainCard: a step trains, fails and is tried again."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.metaflow.conftest import TIMEOUT, Flow, wait_until
from tests.metaflow.test_live_card import card_frame, open_viewer, training

pytestmark = [pytest.mark.xdist_group("metaflow"), pytest.mark.long, pytest.mark.timeout(1500)]


def test_the_third_document_a_step_is_watched_while_it_trains_fails_and_resumes(
    chromium: Browser, tmp_path: Path
) -> None:
    flow = Flow("training", tmp_path)
    with training(flow, "--fail", "once") as (running, seen_enough):
        wait_until(lambda: list(flow.cards_root.glob("**/cards/train-traincard-*.html")))
        with flow.server() as address:
            page, loads = open_viewer(chromium, address)
            frame = card_frame(page, flow)
            before = len(loads)
            # Section 1, run status; section 2, live charts; section 3, telemetry.
            expect(frame.locator("h1 .badge")).to_have_text("Running")
            status = frame.locator("#status")
            for text in ("Phase", "Step", "Elapsed", "Global batch size", "World size"):
                expect(status).to_contain_text(text, ignore_case=True)
            expect(frame.locator('[id="metric-loss"] .legend')).to_contain_text("0.")
            expect(frame.locator("#system")).to_contain_text("CPU")
            # Section 4, checkpoints; section 5, logs that can be searched.
            expect(frame.locator("#checkpoints")).to_be_visible()
            expect(frame.locator("#logs").get_by_role("searchbox")).to_be_visible()
            assert len(loads) == before, "the open page is updated in place"
            seen_enough.touch()
            said, _ = running.communicate(timeout=TIMEOUT)
            assert running.returncode == 0, said
            page.close()
    # Section 6 and resume awareness: the failure was told, the timeline goes on and marks the restart.
    for card in flow.cards():
        shown = card.page_data
        assert (shown["status"]["status"], shown["status"]["restart_count"]) == ("completed", 1)
        (restart,) = shown["discontinuities"]
        assert "MemoryError" in restart["reason"]
