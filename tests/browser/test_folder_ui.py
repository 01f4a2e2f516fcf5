"""`bloom ui` in the browser: the run list, the comparison and the page of a run over a folder, no account."""

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpubloom.traincard import Reporter
from gpubloom.traincard.card.page import write_card
from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.live_server import LiveServer
from tests.server.runs.test_same_numbers import generate


def _report(run_dir: Path, rate: float, optimizer: str, *, diverges: bool = False) -> None:
    with Reporter(run_dir, telemetry_seconds=0, capture=False, announce=False) as reporter:
        reporter.describe({"config": {"learning_rate": rate, "optimizer": optimizer}})
        for step in range(1, 121):
            loss = math.nan if diverges and step > 90 else 1 + rate + 2 * math.exp(-step / 30)
            reporter.metrics({"train/loss": loss, "eval/loss": loss + 0.1}, step=step)
        reporter.log("the run is over")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("folder") / "runs"
    _report(home / "sweep" / "small", 0.1, "adamw")
    _report(home / "sweep" / "medium", 0.2, "muon")
    _report(home / "sweep" / "large", 0.4, "muon", diverges=True)
    return home


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LiveServer]:
    """The command as a person runs it; `home` is the link that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "gpubloom.cli", "ui", str(folder), "--port", "0", "--no-browser"],
        env={**os.environ, "XDG_CACHE_HOME": str(folder.parent / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    link = ""
    for line in process.stdout:
        if found := re.search(r"(http\S+)/open\?token=\S+", line):
            link = line.strip()
            break
    assert link, "bloom ui printed no link"
    yield LiveServer(found[1], Path(link), process, [link])
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    process.wait(30)


@pytest.fixture
def page(new_page: NewPage, server: LiveServer) -> Page:
    page = new_page()
    page.goto(server.output[0])
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    return page


@pytest.mark.long
def test_without_the_link_the_page_says_what_to_do(new_page: NewPage) -> None:
    page = new_page()
    page.goto("/runs")
    expect(page.get_by_role("alert")).to_contain_text("Open the address that `bloom ui` printed")


@pytest.mark.long
def test_runs_of_a_folder_are_listed_filtered_and_labelled(page: Page, folder: Path) -> None:
    table = page.get_by_role("table", name="Runs")
    expect(table.get_by_role("link", name="small")).to_be_visible()
    expect(page.get_by_role("navigation", name="Main").get_by_role("link")).to_have_count(1)
    expect(page.get_by_role("link", name="Start new training job")).to_have_count(0)
    page.get_by_role("combobox", name="Filter runs").or_(
        page.get_by_role("textbox", name="Filter runs")
    ).fill("optimizer = muon")
    expect(table.get_by_role("link")).to_have_count(2)
    page.get_by_role("button", name="Tags and notes of medium").click()
    page.get_by_label("Tags, with commas between them").fill("keep")
    page.get_by_role("button", name="Save").click()
    expect(table.get_by_role("button", name="keep")).to_be_visible()
    assert '"keep"' in (folder / "sweep" / "medium" / "labels.json").read_text()
    assert flaws_on_every_screen(page) == []


@pytest.mark.long
def test_parallel_coordinates_can_be_read_by_keyboard_brushed_and_read_as_a_table(page: Page) -> None:
    for name in ("small", "medium", "large"):
        page.get_by_role("checkbox", name=f"Show {name} in the chart").check()
    panel = page.get_by_role("region", name="Parallel coordinates")
    expect(panel).to_contain_text("3 runs")
    expect(panel.get_by_role("list", name="Axes").get_by_role("listitem")).to_contain_text(
        ["learning_rate", "optimizer"]
    )
    chart = panel.get_by_role("application")
    expect(chart.locator("svg text").filter(has_text="muon")).to_be_visible()
    chart.focus()
    page.keyboard.press("End")
    expect(panel).to_contain_text("small lr 0.1 · optimizer adamw")
    assert flaws_on_every_screen(page) == []
    # Along the first axis, from its middle upwards: only the highest learning rate stays.
    axis = chart.locator("svg rect.cursor-ns-resize").first
    axis.scroll_into_view_if_needed()
    box = axis.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(x, box["y"] + 2, steps=4)
    page.mouse.up()
    expect(panel).to_contain_text("1 of 3 runs in range")
    panel.get_by_role("button", name="Show as table").click()
    rows = panel.get_by_role("region", name="Runs as a table").get_by_role("row")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("large")
    panel.get_by_role("button", name="Clear ranges").click()
    expect(rows).to_have_count(4)
    panel.get_by_role("button", name="Remove the axis optimizer").click()
    expect(rows.first).not_to_contain_text("optimizer")


@pytest.mark.long
def test_a_run_has_the_page_of_a_job(page: Page) -> None:
    page.get_by_role("link", name="large").click()
    expect(page.get_by_role("status").filter(has_text="Diverging")).to_be_visible()
    expect(page.get_by_role("region", name="Training charts").locator("canvas").first).to_be_visible()
    expect(page.get_by_role("button", name="More actions")).to_have_count(0)
    assert flaws_on_every_screen(page) == []
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log", name="Job output")).to_contain_text("the run is over")
    page.get_by_role("tab", name="Config").click()
    expect(page.get_by_role("heading", name="What ran")).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).first.click()
    expect(page.get_by_role("table", name="Runs")).to_be_visible()
    # Pages that need a server lead back to the list.
    page.goto("/providers")
    expect(page.get_by_role("table", name="Runs")).to_be_visible()


@pytest.mark.long
def test_a_run_is_printed_dark_on_light_with_every_chart(page: Page) -> None:
    page.get_by_role("link", name="small").click()
    page.get_by_role("tab", name="Charts").click()
    expect(page.locator("figure.chart").first).to_be_visible()
    page.emulate_media(media="print")
    charts = page.locator("figure.chart").count()
    expect(page.locator(".chart-print > svg")).to_have_count(charts)
    drawn = page.locator("figure.chart").evaluate_all(
        "charts => charts.map(one => one.querySelectorAll('polyline, circle').length)"
    )
    assert drawn
    assert all(count > 0 for count in drawn), drawn
    expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
    light, dark = page.evaluate(
        """() => [getComputedStyle(document.documentElement).backgroundColor,
                  getComputedStyle(document.querySelector("h1")).color]"""
    )
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(31, 41, 55)")


@pytest.mark.long
def test_the_page_of_a_running_run_follows_it(page: Page, folder: Path) -> None:
    reporter = Reporter(folder / "live", telemetry_seconds=0, capture=False, announce=False)
    reporter.metrics({"train/loss": 1.25}, step=1)
    reporter.flush()
    page.goto("/runs?query=name+%3D+live")
    page.get_by_role("link", name="live").click()
    figures = page.get_by_label("Progress", exact=True)
    expect(figures).to_contain_text("1.25")
    reporter.metrics({"train/loss": 0.5}, step=2)
    reporter.flush()
    expect(figures).to_contain_text("0.5")
    reporter.close()
    expect(page.get_by_text("Completed").first).to_be_visible()


@pytest.mark.long
def test_the_card_and_the_page_of_a_run_show_the_same_values(
    page: Page, new_page: NewPage, server: LiveServer, folder: Path
) -> None:
    run_dir = folder / "generated"
    # With spikes, and longer than the points of a chart.
    generate(run_dir, 6)
    card = new_page()
    card.set_content(write_card(run_dir, folder.parent / "card.html").read_text(encoding="utf-8"))
    page.goto("/runs?query=name+%3D+generated")
    page.get_by_role("link", name="generated").click()
    for title in ("Loss", "Gradient norm"):
        shown = page.get_by_role("group", name=f"Values of {title}", exact=True).first
        expect(shown).to_be_visible()
        written = card.get_by_role("group", name=f"Values of {title}", exact=True).first
        expect(written).to_be_visible()
        assert shown.inner_text().split() == written.inner_text().split()
