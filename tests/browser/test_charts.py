"""One long run in its card and on its job page: both draw the same means, and say the same last value."""

import asyncio
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from sqlalchemy import select

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.ingest import Batch, store_checkpoints, store_points
from gpubloom.server.jobs.summary import StoredSummary, summarize
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.traincard import Reporter, load_latest, read_all
from gpubloom.traincard.card.page import write_card
from tests.browser.conftest import DESKTOP, TIMEOUT_MS, NewPage, flaws_on_every_screen
from tests.browser.people import create_project, open_tab, set_up
from tests.live_server import LiveServer
from tests.server.installation import Installation
from tests.traincard_card.generated import generate_run

STEPS, LEVEL, SPIKE, LAST = 50_000, 2.0, 8.0, 1.127
# Of the width of a chart; the newest point, whose mean holds the last value, lies right of them.
POSITIONS = [0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Far more steps than a curve keeps as single points."""
    run_dir = tmp_path_factory.mktemp("long") / "run"
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step in range(STEPS):
            value = LAST if step == STEPS - 1 else SPIKE if step % 100 == 0 else LEVEL
            reporter.metric("train/loss", value, step)
            if step % 1_000 == 0:
                # The queue is bounded: no loop is this fast.
                reporter.flush()
        reporter.progress(STEPS, STEPS)
    return run_dir


def add_as_job(server: LiveServer, run_dir: Path, name: str, status: str = "completed") -> str:
    """The same run in the server's database, by the worker's own ingest; returns the page's path."""
    installation = Installation(server.home, f"sqlite:///{server.home / 'bloom.db'}")
    with installation.session() as session:
        user = session.scalars(select(User).order_by(User.created_at.desc())).first()
        assert user is not None
        project = session.scalars(select(Project).where(Project.user_id == user.id)).one()
        job = TrainingJob(
            id=uuid4(),
            project_id=project.id,
            user_id=user.id,
            name=name,
            status=status,
            config=TrainConfig.model_validate({"name": name}).model_dump(mode="json"),
            start_time=now(),
            end_time=now(),
            attempt=1,
            summary=summarize(StoredSummary(), load_latest(run_dir), 0).dump(),
        )
        session.add(job)
    events = list(read_all(run_dir))

    async def ingest() -> None:
        database = Database(f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
        try:
            for start in range(0, len(events), 5_000):
                async with database.write() as session:
                    await store_points(session, job, Batch(events[start : start + 5_000]))
                    await store_checkpoints(session, job, events[start : start + 5_000])
        finally:
            await database.close()

    # Playwright has an event loop running in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, ingest()).result()
    return f"/projects/{project.id}/jobs/{job.id}"


@pytest.fixture(scope="module")
def diverged_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended as runs that diverge do: hardly a number left that is one."""
    run_dir = tmp_path_factory.mktemp("diverged") / "run"
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.describe({"loss_scale": math.inf, "noise_scale": math.nan, "parameters": math.nan})
        for step, loss in enumerate([3.0, 2.5, 90.0, math.inf, math.nan], start=1):
            values = {"train/loss": loss, "train/grad_norm": math.inf, "train/tokens_per_second": math.inf}
            reporter.metrics(values, step)
        reporter.metric("eval/loss", math.nan, 5)
        reporter.checkpoint(
            "checkpoints/step-5", step=5, metrics={"eval/loss": math.nan, "eval/perplexity": math.inf}
        )
        reporter.system({"gpu/0/power": math.nan, "ram/used": math.nan})
        reporter.log("the loss is no longer a number", level="error")
        reporter.error(FloatingPointError("the loss is nan"))
        reporter.finish("failed", "the loss is nan")
    return run_dir


@pytest.fixture
def card(chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page for a card that is opened as a file; it may see no error."""
    context = chromium.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def under_the_cursor(page: Page, chart: Locator, legend: Locator) -> list[str]:
    """What the legend says while the cursor lies over several places of a chart."""
    chart.scroll_into_view_if_needed()
    over = chart.locator(".u-over")
    found = []
    for position in POSITIONS:
        box = over.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * position, box["y"] + box["height"] / 2)
        expect(legend).to_contain_text("smoothed")
        found.append(legend.inner_text())
    page.mouse.move(0, 0)
    expect(legend).not_to_contain_text("smoothed")
    return found


def check_numbers(read: list[str]) -> None:
    """Every place: a mean near the level, the spike in its range, both raw and smoothed by name."""
    highest = []
    for text in read:
        numbers = re.search(
            r"raw(?: mean)? ([\d.]+)(?:\s*range ([\d.]+) to ([\d.]+))?\s*smoothed ([\d.]+)",
            " ".join(text.split()),
        )
        assert numbers is not None, text
        mean, low, high, smoothed = numbers.groups()
        assert 2.0 <= float(mean) <= 2.1, text
        assert 2.0 <= float(smoothed) <= 2.1, text
        if high is not None:
            assert (float(low), float(high)) == (LEVEL, SPIKE), text
            highest.append(float(high))
    assert SPIKE in highest


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_card_and_the_job_page_of_a_long_run_show_the_same_true_numbers(
    new_page: NewPage, server: LiveServer, card: Page, long_run: Path, tmp_path: Path
) -> None:
    card.goto(write_card(long_run, tmp_path / "card.html").as_uri())
    chart = card.locator("#metric-loss .plot")
    expect(chart).to_have_attribute("aria-label", re.compile("last 1.127"))
    in_card = chart.get_attribute("aria-label")
    legend = card.locator("#metric-loss .legend")
    expect(legend).to_have_text("1.127")
    check_numbers(under_the_cursor(card, chart, legend))

    page = new_page()
    set_up(page, server)
    create_project(page, "Long", "0.001", "corpus.txt")
    page.goto(add_as_job(server, long_run, "Spikes"))
    chart = page.get_by_role("img", name=re.compile("^Loss over steps. train: last"))
    on_page = chart.get_attribute("aria-label")
    legend = page.get_by_role("group", name="Values of Loss")
    expect(legend).to_have_text("1.127")
    check_numbers(under_the_cursor(page, chart, legend))

    assert in_card == on_page
    assert in_card is not None
    words = re.search(r"last ([\d.]+), lowest ([\d.]+), highest ([\d.]+), the line is the mean", in_card)
    assert words is not None, in_card
    assert tuple(map(float, words.groups())) == (LAST, LAST, SPIKE)
    # As a table: the last value by itself, then means with their extremes.
    page.get_by_role("button", name="Show Loss as a table").click()
    rows = page.get_by_role("dialog", name="Loss").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("1.127")
    expect(rows.filter(has_text="(2 to 8)").first).to_be_visible()
    page.keyboard.press("Escape")
    assert flaws_on_every_screen(page) == []


def test_a_card_of_a_diverged_run_shows_every_section_with_what_is_no_number(
    card: Page, diverged_run: Path, tmp_path: Path
) -> None:
    card.goto(write_card(diverged_run, tmp_path / "card.html").as_uri())
    checkpoint = card.locator("#checkpoints tbody tr")
    expect(checkpoint).to_contain_text("eval/loss NaN, eval/perplexity Infinity")
    expect(card.locator("#logs .log")).to_contain_text("the loss is no longer a number")
    failure = card.locator("#failure")
    expect(failure).to_contain_text("NaN at step 5")
    expect(failure).to_contain_text("Infinity at step 5")
    expect(card.locator("#metric-loss .legend")).to_contain_text("NaN")
    expect(card.locator("#metric-grad_norm .legend")).to_have_text("Infinity")
    card.get_by_text("About this run").click()
    expect(card.locator("#status")).to_contain_text("Loss scaleInfinity")
    expect(card.locator("#status")).to_contain_text("Noise scaleNaN")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_pages_of_a_diverged_job_show_what_is_no_number(
    new_page: NewPage, server: LiveServer, diverged_run: Path
) -> None:
    page = new_page()
    set_up(page, server)
    create_project(page, "Rates", "0.001", "corpus.txt")
    path = add_as_job(server, diverged_run, "Diverged", "failed")
    page.goto(path)
    expect(page.get_by_role("group", name="Values of Loss")).to_have_text("train NaNeval NaN")
    expect(page.get_by_role("group", name="Values of Gradient norm")).to_have_text("Infinity")
    open_tab(page, "Checkpoints")
    checkpoints = page.get_by_role("table", name="Checkpoints")
    expect(checkpoints.get_by_role("row").nth(1)).to_contain_text("NaN")
    page.goto("/checkpoints")
    row = page.get_by_role("row").nth(1)
    expect(row).to_contain_text("NaN")
    expect(row).to_contain_text("Infinity")
    page.goto("/runs")
    expect(page.get_by_role("row", name=re.compile("Diverged"))).to_contain_text("NaN")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3, 7, 14])
def test_the_card_and_the_job_page_of_a_generated_run_say_the_same(
    new_page: NewPage, server: LiveServer, card: Page, tmp_path: Path, seed: int
) -> None:
    run_dir = generate_run(tmp_path / "run", seed)
    card.goto(write_card(run_dir, tmp_path / "card.html").as_uri())
    page = new_page()
    set_up(page, server)
    create_project(page, "Generated", "0.001", "corpus.txt")
    page.goto(add_as_job(server, run_dir, f"Run-{seed}"))
    open_tab(page, "Charts")
    expect(page.locator("#metric-loss .plot")).to_have_attribute("aria-label", re.compile("train: last"))
    assert _charts(card) == _charts(page)


def _charts(page: Page) -> dict[str, tuple[str, str]]:
    """By chart: its description, without the marks, and its legend."""
    found = {}
    for chart in page.locator("figure.chart").all():
        name = chart.get_attribute("id") or ""
        if not name.startswith("metric-"):
            continue
        chart.scroll_into_view_if_needed()
        plot = chart.locator(".plot")
        expect(plot).to_have_attribute("aria-label", re.compile("last"))
        words = (plot.get_attribute("aria-label") or "").partition(" Step ")[0]
        found[name] = (words, " ".join(chart.locator(".legend").inner_text().split()))
    return found
