"""A job's page tells what its run warns of and how much of its data it uses, while it runs and afterwards."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import TIMEOUT_MS, NewPage, flaws_on_every_screen
from tests.browser.people import open_tab, sign_in
from tests.live_server import LiveServer
from tests.server.installation import PASSWORD
from tests.tiny_models import ALTERNATING, make_tiny_model, mostly_refused_rows
from tests.worker.test_run_reports import CONFIG
from tests.worker.test_studio_by_api import LiveApp

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    studio = LiveApp(tmp_path_factory.mktemp("reports") / "home")
    try:
        yield studio
    finally:
        studio.close()


@pytest.fixture
def server(studio: LiveApp) -> LiveServer:
    return studio.server


@pytest.mark.long
def test_the_job_page_says_which_rows_are_used_while_it_trains_and_once_it_is_completed(
    new_page: NewPage, studio: LiveApp, tmp_path: Path
) -> None:
    page = new_page()
    page.goto("/auth")
    sign_in(page, password=PASSWORD)
    expect(page).to_have_url(re.compile("/dashboard$"))
    model = studio.bring_model(make_tiny_model(tmp_path / "strict", template=ALTERNATING))
    data = studio.bring_data("chats.jsonl", mostly_refused_rows().encode())
    job_id = studio.train(data["id"], model, CONFIG)
    job = studio.get(f"/api/jobs/{job_id}")
    page.goto(f"/projects/{job['project_id']}/jobs/{job_id}")

    title = page.get_by_role("heading", level=1)
    # Both at the same moment: the run may end between two looks.
    expect(title).to_have_text(re.compile("Running.*20 of 120 rows used"), timeout=4 * TIMEOUT_MS)
    warnings = page.get_by_role("region", name="Run warnings")
    open_tab(page, "Logs")
    expect(warnings).to_contain_text("100 of 120 rows cannot be used")

    expect(title).to_have_text(re.compile("Completed.*20 of 120 rows used"), timeout=10 * TIMEOUT_MS)
    expect(warnings).to_contain_text("100 of 120 rows cannot be used")
    output = page.get_by_role("log", name="Job output")
    for line in ("warning: ", "training starts: ", "step 1/", "evaluation at step ", "completed at step "):
        expect(output).to_contain_text(line)
    assert flaws_on_every_screen(page) == []
    page.goto("/runs?columns=rows_used")
    expect(page.get_by_role("table", name="Runs").get_by_role("row").last).to_contain_text("20")
