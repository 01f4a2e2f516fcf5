"""Secrets for jobs from the browser: stored, listed by name, deleted."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import EVERY_SIZE, NewPage, axe_violations
from tests.browser.people import set_up
from tests.live_server import LiveServer


@pytest.mark.long
@EVERY_SIZE
def test_a_secret_is_stored_listed_without_its_value_and_deleted(
    new_page: NewPage, server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size=size)
    set_up(page, server)
    page.goto("/settings?tab=tokens")
    card = page.get_by_label("Secrets", exact=True)
    card.get_by_label("Name").fill("hf token")
    card.get_by_label("Value", exact=True).fill("hf_example_value")
    card.get_by_role("button", name="Store secret").click()
    expect(card.get_by_text("Use capital letters")).to_be_visible()
    card.get_by_label("Name").fill("HF_TOKEN")
    card.get_by_role("button", name="Store secret").click()
    expect(card.get_by_role("listitem")).to_contain_text("HF_TOKEN")
    expect(card.get_by_label("Value", exact=True)).to_have_value("")
    assert axe_violations(page) == []
    page.reload()
    assert "hf_example_value" not in page.content()
    card.get_by_role("button", name="Delete the secret HF_TOKEN").click()
    page.get_by_role("button", name="Delete secret").click()
    expect(card.get_by_role("listitem")).to_have_count(0)
