"""Alert channels from the browser: created for a person and for a project, tested, changed, deleted."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import EVERY_SIZE, NewPage, axe_violations
from tests.browser.people import create_project, set_up
from tests.live_server import LiveServer
from tests.webhook import Webhook


@pytest.mark.long
@EVERY_SIZE
def test_a_channel_is_created_tested_changed_and_deleted(
    new_page: NewPage, server: LiveServer, size: tuple[int, int]
) -> None:
    hook = Webhook()
    page = new_page(size=size)
    set_up(page, server)
    page.goto("/settings?tab=alerts")
    card = page.get_by_label("Alerts", exact=True).last
    card.get_by_role("button", name="New channel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Kind").select_option("webhook")
    dialog.get_by_label("Name").fill("Ops")
    dialog.get_by_role("button", name="Create channel").click()
    expect(dialog.get_by_text("Enter an address that starts with https://.")).to_be_visible()
    dialog.get_by_label("Address of the webhook", exact=True).fill(hook.address)
    dialog.get_by_text("Diagnoses").click()
    dialog.get_by_label("Possible overfitting").check()
    assert axe_violations(page) == []
    dialog.get_by_role("button", name="Create channel").click()
    expect(dialog.get_by_text("Copy the signing secret now.")).to_be_visible()
    dialog.get_by_role("button", name="Done").click()
    row = card.get_by_role("listitem")
    expect(row).to_contain_text("failed, diverged, stalled, alert, overfitting")
    row.get_by_role("button", name="Test Ops").click()
    expect(page.get_by_text("The test message to Ops was delivered.")).to_be_visible()
    assert hook.messages[0]["title"] == "This is a test"
    row.get_by_role("button", name="Change the rules of Ops").click()
    dialog.get_by_label("The run failed", exact=True).uncheck()
    dialog.get_by_role("button", name="Save rules").click()
    expect(row).not_to_contain_text("failed,")
    row.get_by_role("button", name="Turn off Ops").click()
    expect(row.get_by_text("off", exact=True)).to_be_visible()
    assert axe_violations(page) == []
    page.reload()
    assert hook.address not in page.content()
    row.get_by_role("button", name="Delete Ops").click()
    page.get_by_role("button", name="Delete channel").click()
    expect(card.get_by_text("No alert channels yet.")).to_be_visible()
    hook.close()


@pytest.mark.long
def test_a_project_has_channels_of_its_own(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    email = set_up(page, server)
    create_project(page, "Contracts")
    card = page.get_by_label("Alerts", exact=True)
    card.get_by_role("button", name="New channel").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Mail")
    page.get_by_role("dialog").get_by_role("button", name="Create channel").click()
    expect(card.get_by_role("listitem")).to_contain_text(email)
    page.goto("/settings?tab=alerts")
    expect(page.get_by_text("No alert channels yet.")).to_be_visible()
