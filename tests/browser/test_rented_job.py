"""A service is connected in the browser, a folder runs on its machine, and its bill is watched."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from gpubloom.providers.local.sandbox import why_no_sandbox
from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import choose_action, set_up
from tests.browser.scripts import editor, expect_text, start
from tests.live_server import LiveServer, server_with_bucket
from tests.providers.services.lambda_service import LambdaService

SHARED_APP = True

# Imports nothing that a rented machine would have to fetch first.
TRAIN = """\
import pathlib, time
device = "cuda"
for step in range(1, 41):
    print(f"step {step}: loss {2 / step:.4f}", flush=True)
    time.sleep(0.2)
pathlib.Path("weights.bin").write_bytes(bytes(range(256)) * 64)
"""


@pytest.fixture(scope="module")
def lambda_service() -> Iterator[LambdaService]:
    with LambdaService() as service:
        yield service


@pytest.fixture(scope="module")
def shared_app(
    tmp_path_factory: pytest.TempPathFactory, lambda_service: LambdaService
) -> Iterator[LiveServer]:
    """A server with a worker, a bucket, and a service that rents out machines which really run."""
    with server_with_bucket(tmp_path_factory, BLOOM_SIGNUP="open", **lambda_service.environment) as running:
        yield running


def _write(page: Page, name: str) -> None:
    page.goto("/script")
    page.get_by_role("button", name="Write or paste a script").click()
    editor(page).fill(TRAIN)
    page.get_by_label("Job name").fill(name)


def _choose_a10(page: Page) -> None:
    page.get_by_role("button", name=re.compile("Show all")).click()
    page.get_by_role("radio", name=re.compile(r"Lambda · A10 \$")).check(force=True)


def _connect(page: Page, lambda_service: LambdaService) -> None:
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key", exact=True).fill(lambda_service.api_key)
    dialog.get_by_role("button", name="Connect").click()
    expect(page.get_by_label("Lambda", exact=True).get_by_text("connected", exact=True)).to_be_visible()


@pytest.mark.long
def test_a_service_is_connected_on_the_way_and_its_bill_is_watched(
    new_page: NewPage, live_app: LiveServer, lambda_service: LambdaService
) -> None:
    page = new_page()
    set_up(page, live_app)
    _write(page, "Forty steps")
    page.get_by_label("Budget, in US dollars").fill("5")
    page.get_by_role("link", name="Connect Lambda").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key", exact=True).fill("not the key")
    dialog.get_by_role("button", name="Connect").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Lambda")
    _connect(page, lambda_service)
    assert flaws_on_every_screen(page) == []
    page.get_by_role("button", name="Set a budget").click()
    page.get_by_label("Amount, in US dollars").fill("50")
    page.get_by_role("button", name="Set budget").click()
    expect(page.get_by_text("of $50 per month")).to_be_visible()

    page.get_by_role("link", name="Back to the script").click()
    expect_text(editor(page), TRAIN)
    _choose_a10(page)
    start(page, "Forty steps", rented=True)
    cost = page.get_by_label("Cost", exact=True)
    expect(cost).to_contain_text("Lambda · A10")
    expect(cost).to_contain_text("At $5 the job saves a checkpoint")
    assert flaws_on_every_screen(page) == []
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=120_000)
    expect(cost).to_contain_text("not billed")
    assert lambda_service.running == []
    assert len(lambda_service.instances) == 1
    expect(page.get_by_role("table", name="Output files")).to_contain_text("weights.bin")
    page.goto("/providers")
    expect(page.get_by_label("Spending")).to_contain_text(re.compile(r"Total\$0\.0[2-9]"))
    expect(page.get_by_text("No running instances.")).to_be_visible()


@pytest.mark.long
@pytest.mark.skipif(why_no_sandbox() is not None, reason=f"no sandbox here: {why_no_sandbox()}")
def test_a_job_that_waits_for_a_machine_goes_on_here(
    new_page: NewPage, live_app: LiveServer, lambda_service: LambdaService
) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/providers?connect=lambda")
    _connect(page, lambda_service)
    lambda_service.sold_out()
    _write(page, "Patient steps")
    _choose_a10(page)
    start(page, "Patient steps", rented=True)
    expect(page.get_by_role("status").get_by_text("Waiting.")).to_be_visible()
    # It cannot be paused: nothing in it goes on from a checkpoint.
    expect(page.get_by_role("button", name="Pause")).not_to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel job").click()
    expect(page.get_by_text("Cancelled", exact=True).first).to_be_visible()
    choose_action(page, "Move to another machine")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Required GPU memory, in GB")).not_to_have_value("")
    assert flaws_on_every_screen(page) == []
    dialog.get_by_role("radio", name=re.compile("This machine")).check(force=True)
    dialog.get_by_role("button", name="Move job").click()
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=120_000)
    assert lambda_service.running == []
