"""What a person can do with a chart of a card, and what is on paper."""

import csv
import io
import math
import re
import zlib
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpubloom.traincard import Reporter
from gpubloom.traincard.card import render_card
from gpubloom.traincard.card.page import write_card
from tests.browser.conftest import PHONE, axe_violations
from tests.traincard_card.conftest import OpenCard
from tests.traincard_card.example import HOSTILE, example_snapshot, metric

pytestmark = pytest.mark.xdist_group("browser")

STEPS = 5_000


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with spikes, NaN, a resume, tokens and rare evaluations, as its card."""
    run_dir = tmp_path_factory.mktemp("run") / "run"
    for attempt, (begin, end) in enumerate([(0, 3_000), (2_500, STEPS)]):
        with Reporter(run_dir, telemetry_seconds=0) as reporter:
            if attempt:
                reporter.resumed(begin)
            for step in range(begin, end):
                loss = math.nan if 1_000 <= step < 1_010 else 9.0 if step == 4_321 else 2 + step % 2 / 10
                reporter.metrics({"train/loss": loss, "train/tokens_seen": 512.0 * step}, step)
                if step % 500 == 0:
                    reporter.metrics({"eval/loss": 2.5, "eval/samples_per_second": 900.0}, step)
                    reporter.checkpoint(
                        f"checkpoints/{step}", step=step, metrics={"eval/loss": 2.5, "eval/runtime": 3.5}
                    )
                    reporter.flush()
                reporter.metric("train/samples_per_second", 40.0, step)
            reporter.progress(end, STEPS, epoch=end / 2_000, epochs=2.5)
    return write_card(run_dir, run_dir.parent / "card.html").read_text(encoding="utf-8")


def _legend(page: Page) -> str:
    return " ".join(page.locator("#metric-loss .legend").inner_text().split())


def _words(page: Page) -> str:
    return page.locator("#metric-loss .plot").get_attribute("aria-label") or ""


@pytest.mark.long
def test_a_zoom_loads_the_single_steps_from_the_file(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    loss = page.locator("#metric-loss .u-over")
    loss.scroll_into_view_if_needed()
    box = loss.bounding_box()
    assert box is not None
    # The spike at step 4,321 is in a mean at first, and a value of its own in the part around it.
    at = box["x"] + box["width"] * 4_321 / (STEPS - 1)
    page.mouse.move(at, box["y"] + 40)
    expect(page.locator("#metric-loss .legend")).to_contain_text("raw mean")
    page.mouse.move(at - 12, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(at + 12, box["y"] + 40, steps=4)
    page.mouse.up()
    expect(page.get_by_role("button", name="Reset zoom")).to_be_visible()
    found = set()
    for share in range(1, 100):
        page.mouse.move(box["x"] + box["width"] * share / 100, box["y"] + 40)
        found.add(_legend(page).partition("smoothed")[0].strip())
    assert "train raw 9" in found


def test_keys_read_values_zoom_and_go_back(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    plot = page.locator("#metric-loss .plot")
    plot.scroll_into_view_if_needed()
    expect(plot.locator("canvas")).to_be_visible()
    plot.focus()
    figure = page.locator("#metric-loss")
    page.keyboard.press("ArrowLeft")
    expect(figure).to_have_attribute("data-at", "step 4,999")
    expect(page.locator("#metric-loss .legend")).to_have_attribute("aria-live", "polite")
    page.keyboard.press("ArrowLeft")
    expect(figure).not_to_have_attribute("data-at", "step 4,999")
    page.keyboard.press("+")
    reset = page.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_visible()
    page.keyboard.press("Escape")
    expect(reset).to_be_hidden()


def test_the_axis_counts_steps_time_tokens_or_epochs(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    axis = page.get_by_label("Horizontal axis")
    assert axis.locator("option").all_inner_texts() == ["step", "time", "tokens", "epoch"]
    plot = page.locator("#metric-loss .plot")
    plot.scroll_into_view_if_needed()
    for along, words in (("tokens", "2,559,488 tokens"), ("epoch", "epoch 2.5"), ("step", "step 4,999")):
        axis.select_option(along)
        expect(plot).to_have_attribute("aria-label", re.compile(f"^Loss over {along}s?\\."))
        plot.focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#metric-loss")).to_have_attribute("data-at", words)
    axis.select_option("time")
    expect(plot).to_have_attribute("aria-label", re.compile("^Loss over time"))
    plot.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#metric-loss .chart-at")).to_have_attribute("title", re.compile("GMT$"))


def test_a_line_can_be_switched_off_and_keeps_its_colour(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    train = page.locator("#metric-loss .legend").get_by_role("button", name="train")
    colour = train.locator(".dash").evaluate("node => getComputedStyle(node).backgroundColor")
    assert colour == "rgb(187, 165, 252)"
    train.click()
    expect(train).to_have_attribute("aria-pressed", "false")
    train.click()
    expect(train).to_have_attribute("aria-pressed", "true")


def test_training_and_evaluation_speeds_are_charts_of_their_own(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    titles = page.locator("#metrics h3").all_inner_texts()
    assert titles == ["Loss", "Samples per second", "Eval samples per second"]
    assert page.locator("#checkpoints tbody tr").first.inner_text().count("eval/loss") == 1
    assert "runtime" not in page.locator("#checkpoints").inner_text()


def test_a_chart_is_saved_as_csv_png_and_svg(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    page.locator("#metric-loss").scroll_into_view_if_needed()
    files = {}
    for kind in ("CSV", "PNG", "SVG"):
        page.get_by_label("Save Loss").click()
        with page.expect_download() as download:
            page.locator("#metric-loss").get_by_role("button", name=kind).click()
        assert download.value.suggested_filename == f"loss.{kind.lower()}"
        files[kind] = Path(download.value.path()).read_bytes()
    rows = list(csv.DictReader(io.StringIO(files["CSV"].decode())))
    assert [row["eval"] for row in rows if row["eval"]] == ["2.5"] * 11
    values = [float(row["train"]) for row in rows if row["train"]]
    assert (max(value for value in values if value == value), len(values)) == (9, 5_500)
    assert sum(math.isnan(value) for value in values) == 10
    assert files["PNG"].startswith(b"\x89PNG")
    assert len(files["PNG"]) > 5_000
    drawn = files["SVG"].decode()
    assert drawn.count("<polyline") >= 4
    assert "var(" not in drawn


def test_the_full_size_view_and_the_table_open_and_close(open_card: OpenCard, card: str) -> None:
    page = open_card(card)
    page.get_by_role("button", name="Show Loss in full size").click()
    dialog = page.get_by_role("dialog", name="Loss")
    expect(dialog.locator("canvas")).to_be_visible()
    box = dialog.locator(".plot").bounding_box()
    assert box is not None
    assert box["height"] > 600
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Show Loss as a table").click()
    expect(page.get_by_role("dialog", name="Loss").get_by_role("row").nth(1)).to_contain_text("step 4,999")
    assert axe_violations(page) == []


def test_on_a_phone_the_values_stand_below_the_chart(open_card: OpenCard, card: str) -> None:
    page = open_card(card, size=PHONE)
    plot, values = page.locator("#metric-loss .plot"), page.locator("#metric-loss .chart-values")
    plot.scroll_into_view_if_needed()
    drawn, below = plot.bounding_box(), values.bounding_box()
    assert drawn is not None
    assert below is not None
    assert below["y"] >= drawn["y"] + drawn["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert axe_violations(page) == []


def _path_lines(pdf: bytes) -> int:
    """How many straight lines are drawn on all pages."""
    found = 0
    for packed in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            content = zlib.decompress(packed)
        except zlib.error:
            continue
        found += len(re.findall(rb"\d l\b", content))
    return found


def test_every_chart_is_on_paper_also_those_that_were_never_on_the_screen(open_card: OpenCard) -> None:
    page = open_card(render_card(example_snapshot()))
    charts = page.locator(".chart").count()
    assert charts > 8
    assert page.locator(".chart canvas").count() < charts
    drawn = _path_lines(page.pdf(format="A4"))
    assert drawn > 1_000
    # The same as what the style sheet for paper shows: each chart, in the colours for light pages.
    page.emulate_media(media="print")
    expect(page.locator(".chart-print > svg")).to_have_count(charts)
    lines = page.locator(".chart").evaluate_all(
        "charts => charts.map(one => one.querySelectorAll('polyline, circle').length)"
    )
    assert all(count > 0 for count in lines), lines
    colour = page.locator("#metric-loss polyline").last.evaluate("node => getComputedStyle(node).stroke")
    assert colour in {"rgb(109, 40, 217)", "rgb(5, 116, 128)"}
    expect(page.locator("#metric-loss .plot")).to_be_hidden()
    page.emulate_media(media="screen")
    expect(page.locator(".chart-print > svg")).to_have_count(0)


def test_nothing_a_run_says_becomes_markup_on_paper(open_card: OpenCard) -> None:
    snapshot = example_snapshot()
    snapshot["metrics"].append(metric(f"train/{HOSTILE}", 10, 5, lambda x: x))
    page = open_card(render_card(snapshot))
    page.emulate_media(media="print")
    expect(page.locator(".chart-print > svg").first).to_be_visible()
    assert page.locator("#card img, #card script").count() == 0
    assert page.locator(".chart-print text", has_text="<img").count() > 0
