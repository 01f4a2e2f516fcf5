"""From a server without any configuration to a running job on a rented GPU: with only a key and clicks.

What `make run` starts is `bloom up` without a variable; here the SDK of Modal is led to a fake besides.
"""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import set_up
from tests.browser.scripts import editor, start
from tests.live_server import LiveServer, live_server
from tests.providers.services.modal_service import ModalService

SHARED_APP = True

# Imports nothing that a rented machine would have to fetch first.
TRAIN = """\
import time
device = "cuda"
for step in range(1, 41):
    print(f"step {step}: loss {2 / step:.4f}", flush=True)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def modal_service() -> Iterator[ModalService]:
    with ModalService() as service:
        yield service


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory: pytest.TempPathFactory, modal_service: ModalService) -> Iterator[LiveServer]:
    """No bucket, no public address, nothing set up."""
    home = tmp_path_factory.mktemp("app") / "home"
    with live_server(home, command="up", **modal_service.environment) as running:
        yield running


@pytest.mark.long
def test_a_key_and_clicks_lead_to_a_job_that_runs_on_a_rented_gpu(
    new_page: NewPage, live_app: LiveServer, modal_service: ModalService
) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/script")
    page.get_by_role("button", name="Write or paste a script").click()
    editor(page).fill(TRAIN)
    page.get_by_label("Job name").fill("First rented job")
    page.get_by_role("link", name="Connect Modal").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token ID", exact=True).fill(modal_service.credentials["token_id"])
    dialog.get_by_label("Token secret", exact=True).fill(modal_service.credentials["token_secret"])
    dialog.get_by_role("button", name="Connect").click()
    modal = page.get_by_label("Modal", exact=True)
    expect(modal.get_by_text("connected", exact=True)).to_be_visible()
    expect(modal).to_contain_text("Files of jobs go through: Modal Volume.")
    expect(page.get_by_text("needs a storage bucket")).to_have_count(0)
    assert flaws_on_every_screen(page) == []

    page.get_by_role("link", name="Back to the script").click()
    page.get_by_role("button", name=re.compile("Show all")).click()
    page.get_by_role("radio", name=re.compile(r"Modal · T4 \$")).check(force=True)
    start(page, "First rented job", rented=True)
    expect(page.get_by_text("Modal Volume").first).to_be_visible()
    # The first loss, from the machine.
    expect(page.get_by_text("Running", exact=True).first).to_be_visible(timeout=60_000)
    expect(page.get_by_label("Cost", exact=True)).to_contain_text("Modal · T4")
    assert flaws_on_every_screen(page) == []
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=120_000)
    points = page.request.get(f"/api/jobs/{page.url.rpartition('/')[2]}/metrics").json()
    assert "loss" in str(points)
    # Nothing is left that costs money. The volume goes after the job.
    expect(page.get_by_label("Cost", exact=True)).to_contain_text("not billed")
    assert modal_service.running == []
    deadline = time.monotonic() + 60
    while modal_service.volumes.names:
        assert time.monotonic() < deadline, "the volume of the job is still there"
        page.wait_for_timeout(200)
