"""The run list in the browser: filter, seeds, overlay, config diff, tags, views; old addresses."""

import math
import re
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import select

from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from tests.browser.conftest import NewPage
from tests.browser.people import set_up
from tests.live_server import LiveServer
from tests.server.installation import Installation
from tests.server.runs.reported import report


def _fill(server: LiveServer, email: str) -> None:
    """Three seeds at one learning rate, of which one failed; two at another; and a script."""
    installation = Installation(server.home, f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
    with installation.session() as session:
        owner = session.scalars(select(User).where(User.email == email)).one()
    project = installation.add(Project(id=uuid4(), user_id=owner.id, name="Support assistant"))
    for rate, seeds, floor in ((2e-4, 3, 1.28), (1e-4, 2, 1.31)):
        for seed in range(seeds):
            failed = seed == 2
            config = TrainConfig.model_validate(
                {"data": {"train_path": "/d.txt"}, "device": "cpu", "learning_rate": rate, "seed": seed}
            )
            job = installation.add(
                TrainingJob(
                    id=uuid4(),
                    user_id=owner.id,
                    project_id=project.id,
                    name=f"gemma LoRA, lr {rate:g}, seed {seed}",
                    config=config.model_dump(mode="json"),
                    status="failed" if failed else "completed",
                    error_message="Diverged: loss is NaN since step 150." if failed else None,
                    start_time=now(),
                    end_time=now(),
                )
            )
            count = 150 if failed else 300
            steps = [floor + 0.02 * seed + 2 * math.exp(-step / 40) for step in range(count)]
            report(installation, job, "eval/loss", steps)
            report(installation, job, "train/loss", [value - 0.3 for value in steps])
    installation.add(
        TrainingJob(
            id=uuid4(),
            user_id=owner.id,
            project_id=project.id,
            name="nanogpt",
            kind="script",
            config={"kind": "script"},
            status="running",
            start_time=now(),
            summary={"step": 61, "total_steps": 100, "values": {"train/loss": {"step": 61, "value": 1.5}}},
        )
    )


@pytest.fixture
def page(new_page: NewPage, server: LiveServer) -> Page:
    page = new_page()
    _fill(server, set_up(page, server))
    page.goto("/runs")
    return page


def _row(page: Page, text: str) -> Locator:
    return page.get_by_role("table", name="Runs").get_by_role("row").filter(has_text=text)


@pytest.mark.long
def test_an_empty_list_shows_how_to_send_a_run_in_parts_that_can_be_copied(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    set_up(page, server)
    page.goto("/runs")
    shell, script = (page.get_by_role("region", name=name) for name in ("In the shell", "In your script"))
    expect(shell.locator("pre")).to_have_text(re.compile(r"^export BLOOM_SERVER=\S+\nexport BLOOM_TOKEN=…$"))
    expect(script.locator("pre")).to_have_text(re.compile("^from gpubloom"))
    expect(page.get_by_role("button", name="Copy: In your script")).to_be_visible()
    page.get_by_role("link", name="API token").click()
    expect(page.get_by_role("button", name="New token")).to_be_visible()


@pytest.mark.long
def test_seeds_are_one_row_and_a_filter_finds_runs(page: Page) -> None:
    table = page.get_by_role("table", name="Runs")
    expect(_row(page, "3 seeds")).to_contain_text("1 of 3 failed")
    table.get_by_role("button", name="Show the seeds of gemma LoRA, lr 0.0002").click()
    expect(table.get_by_role("link", name="seed 1")).to_be_visible()
    field = page.get_by_role("textbox", name="Filter runs").or_(
        page.get_by_role("combobox", name="Filter runs")
    )
    field.fill("lr > 1e-4 and status = failed")
    expect(_row(page, "gemma")).to_have_count(1)
    field.fill("lrr > 1")
    expect(page.get_by_role("alert")).to_contain_text("at character 1")
    # The rows of the last filter that could be read stay.
    expect(_row(page, "gemma")).to_have_count(1)
    field.fill("name = nothing")
    page.get_by_role("button", name="Clear the filter").last.click()
    expect(_row(page, "seeds")).to_have_count(2)


@pytest.mark.long
def test_chosen_rows_are_overlaid_and_their_configs_compared(page: Page) -> None:
    page.get_by_role("checkbox", name="Show gemma LoRA, lr 0.0002 in the chart").check()
    page.get_by_role("checkbox", name="Show gemma LoRA, lr 0.0001 in the chart").check()
    panel = page.get_by_role("region", name="Comparison")
    expect(panel).to_contain_text("5 runs selected in 2 groups")
    expect(panel.get_by_role("row", name="learning_rate")).to_contain_text("1e-4")
    expect(panel.locator("canvas").first).to_be_visible()
    page.reload()
    expect(panel).to_contain_text("5 runs selected in 2 groups")


@pytest.mark.long
def test_tags_and_views_are_kept(page: Page) -> None:
    page.get_by_role("button", name="Tags and notes of nanogpt").click()
    page.get_by_label("Tags, with commas between them").fill("baseline, keep")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="baseline").click()
    expect(
        page.get_by_role("table", name="Runs").get_by_role("row").filter(has_text="nanogpt")
    ).to_have_count(1)
    page.get_by_role("button", name="Save as…").click()
    page.get_by_label("Name of the view").fill("Baselines")
    page.get_by_role("button", name="Save view").click()
    expect(
        page.get_by_role("navigation", name="Views").get_by_role("button", name="Baselines")
    ).to_be_visible()
    page.goto("/runs")
    page.get_by_role("navigation", name="Views").get_by_role("button", name="Baselines").click()
    expect(page.get_by_role("table", name="Runs").get_by_role("row").filter(has_text="gemma")).to_have_count(
        0
    )
    page.get_by_role("button", name="Delete view").click()
    expect(page.get_by_role("button", name="Baselines")).to_have_count(0)


@pytest.mark.long
def test_old_addresses_lead_to_the_list(page: Page) -> None:
    page.goto("/jobs?status=failed")
    expect(page).to_have_url(re.compile(r"/runs\?query=status\+%3D\+failed$"))
    page.goto("/compare")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


@pytest.mark.long
def test_a_phone_shows_two_lines_per_row_and_does_not_scroll_sideways(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page((390, 844))
    _fill(server, set_up(page, server))
    page.goto("/runs")
    row = _row(page, "3 seeds")
    expect(row).to_be_visible()
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 90
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
