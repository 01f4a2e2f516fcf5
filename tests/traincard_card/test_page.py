"""What the card shows, in a real browser, from a file."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gpubloom.traincard.card import render_card
from gpubloom.traincard.card.content import card_content
from tests.browser.conftest import DESKTOP, PHONE, axe_violations
from tests.traincard_card.conftest import OpenCard
from tests.traincard_card.example import HOSTILE, example_snapshot, metric

pytestmark = pytest.mark.xdist_group("browser")

SECTIONS = [
    "Status",
    "Training metrics",
    "Samples",
    "System",
    "Checkpoints",
    "Logs",
    "Failure summary",
    "What ran",
]


def _update(page: Page, snapshot: dict[str, Any]) -> None:
    page.evaluate("data => window.metaflow_card_update(data)", card_content(snapshot))


def _legend(page: Page, chart: str) -> str:
    return page.locator(f'[id="{chart}"] .legend').inner_text()


def _drawn(page: Page, chart: str) -> bool:
    """Whether a chart's canvas holds anything but background."""
    page.locator(f'[id="{chart}"]').scroll_into_view_if_needed()
    page.wait_for_selector(f'[id="{chart}"] canvas')
    return bool(
        page.evaluate(
            """id => {
              const canvas = document.getElementById(id).querySelector("canvas");
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              let coloured = 0;
              for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) coloured += 1;
              return coloured > 200;
            }""",
            chart,
        )
    )


def test_the_card_has_eight_sections_with_every_field(open_card: OpenCard) -> None:
    page = open_card(render_card(example_snapshot(status="failed")))
    assert page.locator("h2").all_inner_texts() == SECTIONS
    status = page.locator("#status").inner_text()
    for field in ("Phase", "Step", "Epoch", "Elapsed", "Time left", "Global batch", "World size", "Restarts"):
        assert field in status
    assert "4,000 / 8,000" in status
    assert "Rank 1 is silent" in status
    charts = page.locator("#metrics h3").all_inner_texts()
    assert charts[:6] == [
        "Loss", "Learning rate", "Gradient norm", "Tokens per second", "Samples per second", "Accuracy",
    ]  # fmt: skip
    assert "train" in _legend(page, "metric-loss")
    assert "eval" in _legend(page, "metric-loss")
    assert "expert=3" in _legend(page, "metric-router_entropy")
    system = page.locator("#system").inner_text()
    for field in ("GPU 0 NVIDIA H200", "71 GB / 80 GB", "61 °C", "642 W", "All 2", "142 GB / 160 GB", "CPU"):
        assert field in system
    for field in ("RAM", "Disk", "Fan", "Silent", "(rank 1), 3 % above the lowest"):
        assert field in system
    checkpoints = page.locator("#checkpoints").inner_text()
    for field in ("2,000", "Best", "988 MB", "eval/loss 1.5", "checkpoints/step-00001000", "(deleted)"):
        assert field in checkpoints
    failure = page.locator("#failure").inner_text()
    for field in ("torch.OutOfMemoryError", "CUDA out of memory", "Likely cause", "line 3, in step", "1.284"):
        assert field in failure
    assert "NaN at step 3,900" in failure
    assert "79.6 GB" in failure


def test_a_running_card_says_that_nothing_went_wrong(open_card: OpenCard) -> None:
    page = open_card(render_card(example_snapshot()))
    expect(page.locator("#failure")).to_contain_text("No failure so far.")
    expect(page.locator("h1 .badge")).to_have_text("Running")


def test_charts_are_drawn_and_mark_the_restart(open_card: OpenCard) -> None:
    page = open_card(render_card(example_snapshot()))
    assert _drawn(page, "metric-loss")
    assert _drawn(page, "system-gpu/utilization")
    words = page.locator('[id="metric-loss"] .plot').get_attribute("aria-label") or ""
    assert "Step 2,000: attempt 2, 100 steps repeated: preempted." in words
    assert len(_legend(page, "system-gpu/utilization").split("GPU")) == 3


def test_dragging_zooms_all_charts_and_a_double_click_resets(open_card: OpenCard) -> None:
    page = open_card(render_card(example_snapshot()))
    plot = page.locator('[id="metric-loss"] .u-over')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    reset = page.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_hidden()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 50, steps=5)
    page.mouse.up()
    expect(reset).to_be_visible()
    page.mouse.move(box["x"] + 1, box["y"] + 50)
    expect(page.locator('[id="metric-loss"]')).to_have_attribute("data-at", "step 2,004")
    page.mouse.dblclick(box["x"] + box["width"] * 0.5, box["y"] + 50)
    expect(reset).to_be_hidden()


def test_nothing_a_run_says_becomes_markup_or_script(open_card: OpenCard) -> None:
    snapshot = example_snapshot(status="failed")
    snapshot["name"] = HOSTILE
    snapshot["failure"]["message"] = snapshot["failure"]["traceback"] = HOSTILE
    snapshot["metrics"].append(metric(f"train/{HOSTILE}", 10, 5, lambda x: x))
    snapshot["checkpoints"]["items"][1]["path"] = "javascript:alert(1)"
    snapshot["checkpoints"]["items"][1]["link"] = "javascript:alert(1)"
    html = render_card(snapshot, notes=(HOSTILE,))
    assert html.count("<script") == html.count("</script>") == 2
    page = open_card(html)
    assert page.title() == f"{HOSTILE} · TrainCard"
    assert page.locator("#card img, #card script").count() == 0
    assert page.locator("a[href^=javascript]").count() == 0
    expect(page.locator("#logs")).to_contain_text(HOSTILE)
    _update(page, snapshot)
    assert page.locator("#card img, #card script").count() == 0


def test_the_page_forbids_every_request_and_every_other_script(chromium: Browser, tmp_path: Path) -> None:
    html = render_card(example_snapshot())
    policy = html.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    foreign = "<script>document.title = 'owned'</script><img src=https://example.org/pixel.png>"
    path = tmp_path / "card.html"
    path.write_text(html.replace("</body>", f"{foreign}</body>"))
    page = chromium.new_page()
    left: list[str] = []
    page.on("requestfinished", lambda request: left.append(request.url))
    page.goto(path.as_uri())
    assert page.title() == "qwen-finetune · TrainCard"
    assert left == [path.as_uri()]
    page.close()


def test_log_lines_are_searched_marked_and_folded(open_card: OpenCard) -> None:
    page = open_card(render_card(example_snapshot()))
    log = page.locator("#logs .log")
    expect(page.locator("#logs .dim").first).to_have_text("The last 304 of 5,000 lines, 2 errors.")
    assert log.locator("details.wrong").count() == 1
    assert log.locator("details[open]").count() == 0
    assert log.locator(".warned").count() == 1
    page.get_by_label("Search the log").fill("TRAIN.PY")
    assert log.locator(".line").count() == 1
    expect(log.locator("details mark")).to_have_text("train.py")
    page.get_by_label("Search the log").fill("")
    page.get_by_label("Errors only").check()
    assert log.locator(".line").count() == 2


def test_live_data_changes_the_page_in_place(open_card: OpenCard) -> None:
    snapshot = example_snapshot()
    page = open_card(render_card(snapshot))
    page.get_by_label("Search the log").fill("loss")
    page.evaluate("document.getElementById('metric-loss').dataset.kept = 'yes'; window.kept = true")
    snapshot["status"]["step"] = 4_321
    snapshot["metrics"].append(metric("train/fresh", 4_321, 20, lambda x: x))
    snapshot["logs"]["lines"].append({**snapshot["logs"]["lines"][0], "line": "fresh line about loss"})
    snapshot["logs"]["total"] += 1
    _update(page, snapshot)
    expect(page.locator("#status")).to_contain_text("4,321 / 8,000")
    expect(page.locator("#logs .log")).to_contain_text("fresh line about loss")
    expect(page.locator('[id="metric-fresh"]')).to_be_attached()
    assert page.get_by_label("Search the log").input_value() == "loss"
    assert page.locator("[data-kept]").count() == 1
    assert page.evaluate("window.kept")


def test_a_run_that_has_said_nothing_has_a_card(open_card: OpenCard) -> None:
    snapshot = example_snapshot()
    snapshot |= {"metrics": [], "findings": [], "discontinuities": [], "ranks": [], "rank_variance": []}
    snapshot["system"] = {"nodes": [], "series": []}
    snapshot["checkpoints"] = {"best": None, "items": []}
    snapshot["logs"] = {"lines": [], "total": 0, "errors": 0}
    snapshot["status"] = dict.fromkeys(snapshot["status"]) | {
        "status": "waiting", "restart_count": 0, "dropped": {}, "facts": {},
    }  # fmt: skip
    page = open_card(render_card(snapshot))
    for sentence in ("No metric has been reported yet.", "No checkpoint has been saved yet."):
        expect(page.locator("main")).to_contain_text(sentence)


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_accessibility_violation_and_nothing_wider_than_the_screen(
    open_card: OpenCard, size: tuple[int, int], scheme: str
) -> None:
    page = open_card(render_card(example_snapshot(status="failed")), size, scheme)
    page.locator("#metric-loss").scroll_into_view_if_needed()
    page.wait_for_selector("canvas")
    assert axe_violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def test_the_page_is_small_and_its_data_is_plain_json() -> None:
    html = render_card(example_snapshot())
    data = html.partition('id="card-data">')[2].partition("</script>")[0]
    assert json.loads(data)["name"] == "qwen-finetune"
    assert len(html) - len(data) < 135_000
