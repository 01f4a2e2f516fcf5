"""Second factors in a browser: an authenticator app, and passkeys of Chromium's virtual authenticator."""

from collections.abc import Iterator
from pathlib import Path

import pyotp
import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import create_engine, text

from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import PASSWORD, set_up, sign_in
from tests.live_server import LiveServer, live_server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LiveServer]:
    """A server at a host name: a passkey belongs to one, never to an IP address."""
    with live_server(tmp_path / "home", BLOOM_SIGNUP="open", BLOOM_HOST="localhost") as running:
        yield running


def add_authenticator(page: Page) -> None:
    """A device with a fingerprint reader, whose owner is always there."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def sign_out(page: Page) -> None:
    page.context.clear_cookies()
    page.goto("/auth")


def forget_sign_in(server: LiveServer) -> None:
    """Let every session's sign-in be long ago."""
    engine = create_engine(f"sqlite:///{server.home / 'bloom.db'}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE sessions SET authenticated_at = '2020-01-01 00:00:00.000000'"))
    engine.dispose()


@pytest.mark.long
def test_a_passkey_is_added_and_signs_in_with_and_without_the_password(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    email = set_up(page, own_server)
    add_authenticator(page)
    page.goto("/settings")
    page.get_by_role("button", name="Add a passkey").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("Laptop")
    form.get_by_role("button", name="Add passkey").click()
    codes = page.get_by_role("dialog", name="Your recovery codes")
    expect(codes.get_by_role("listitem")).to_have_count(10)
    assert flaws_on_every_screen(page) == []
    paper = codes.get_by_role("listitem").first.inner_text()
    codes.get_by_role("button", name="I have stored the codes").click()
    expect(page.get_by_role("table", name="Passkeys")).to_contain_text("Laptop")

    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page).to_have_url(f"{own_server.address}/dashboard")

    sign_out(page)
    sign_in(page, email)
    expect(page.get_by_role("heading", name="Enter your second factor")).to_be_visible()
    assert flaws_on_every_screen(page) == []
    page.get_by_role("button", name="Use a passkey").click()
    expect(page).to_have_url(f"{own_server.address}/dashboard")

    sign_out(page)
    sign_in(page, email)
    page.get_by_label("Recovery code").fill(paper)
    page.get_by_role("button", name="Continue").click()
    expect(page).to_have_url(f"{own_server.address}/dashboard")

    # A browser without the passkey, where somebody knows the password.
    thief = new_page()
    thief.goto("/auth")
    sign_in(thief, email)
    expect(thief.get_by_role("heading", name="Enter your second factor")).to_be_visible()
    thief.goto("/dashboard")
    expect(thief.get_by_role("heading", name="Sign in to GPU Bloom")).to_be_visible()


@pytest.mark.long
def test_an_old_sign_in_is_confirmed_and_the_change_is_made(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    email = set_up(page, own_server)
    page.goto("/settings")
    forget_sign_in(own_server)
    page.get_by_role("button", name="Set up an authenticator app").click()
    confirm = page.get_by_role("dialog", name="Confirm it is you")
    confirm.get_by_label("Password", exact=True).fill(PASSWORD)
    assert flaws_on_every_screen(page) == []
    confirm.get_by_role("button", name="Confirm").click()
    setup = page.get_by_role("dialog", name="Set up an authenticator app")
    expect(setup.get_by_alt_text("QR code for the authenticator app")).to_be_visible()
    assert flaws_on_every_screen(page) == []
    app = pyotp.TOTP(setup.locator("code").inner_text())
    setup.get_by_label("Code", exact=True).fill(app.now())
    setup.get_by_role("button", name="Turn on").click()
    codes = page.get_by_role("dialog", name="Your recovery codes")
    expect(codes.get_by_role("listitem")).to_have_count(10)
    [paper, other] = codes.get_by_role("listitem").all_inner_texts()[:2]
    codes.get_by_role("button", name="I have stored the codes").click()

    # In a dialog above another dialog: both are there, and the lower one finishes.
    page.goto("/settings?tab=tokens")
    page.get_by_role("button", name="New token").click()
    page.get_by_role("dialog", name="New API token").get_by_label("Name").fill("laptop")
    forget_sign_in(own_server)
    page.get_by_role("button", name="Create token").click()
    confirm.get_by_label("Password", exact=True).fill(PASSWORD)
    confirm.get_by_label("Code").fill(paper)
    confirm.get_by_role("button", name="Confirm").click()
    expect(page.get_by_text("The token is not shown again")).to_be_visible()

    sign_out(page)
    sign_in(page, email)
    page.get_by_label("Code").fill("000000")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("This code is wrong or was already used")).to_be_visible()
    page.get_by_label("Code").fill(other)
    page.get_by_role("button", name="Continue").click()
    expect(page).to_have_url(f"{own_server.address}/dashboard")
