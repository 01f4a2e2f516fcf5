"""Accounts in a browser: choosing a password, invitations, and an account at an OpenID provider."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import DESKTOP, EVERY_SIZE, NewPage, flaws_on_every_screen
from tests.browser.people import PASSWORD, set_up
from tests.live_server import LiveServer, live_server
from tests.openid_provider import openid_provider
from tests.server.test_pictures import image_file

PERSON = {"sub": "ada", "email": "ada@example.org", "email_verified": True, "name": "Ada"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with openid_provider(PERSON) as address:
        yield address


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[LiveServer]:
    settings = {
        "BLOOM_OIDC_ISSUER": issuer,
        "BLOOM_OIDC_CLIENT_ID": "bloom",
        "BLOOM_OIDC_CLIENT_SECRET": "a secret",
        "BLOOM_OIDC_NAME": "Example ID",
    }
    home = tmp_path_factory.mktemp("server") / "home"
    with live_server(home, BLOOM_SIGNUP="open", **settings) as running:
        yield running


@pytest.mark.long
@EVERY_SIZE
def test_an_invitation_is_sent_listed_and_revoked(
    new_page: NewPage, own_server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size)
    set_up(page, own_server)
    page.goto("/settings?tab=people")
    page.get_by_role("button", name="Invite").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Email").fill("eve@example.org")
    dialog.get_by_role("button", name="Create invitation").click()
    expect(dialog.get_by_text("Send this link to")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Revoke the invitation of eve@example.org").click()
    page.get_by_role("alertdialog").or_(page.get_by_role("dialog")).get_by_role(
        "button", name="Revoke invitation"
    ).click()
    expect(page.get_by_text("No open invitations.")).to_be_visible()


@pytest.mark.long
@EVERY_SIZE
def test_a_new_password_is_rated_and_revokes_tokens_unless_they_are_kept(
    new_page: NewPage, own_server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size)
    set_up(page, own_server)
    page.goto("/settings")
    new = page.get_by_label("New password", exact=True)
    new.fill("AdaLovelace1815")
    expect(page.get_by_text("This password contains your name")).to_be_visible()
    new.fill("another walk in that garden")
    expect(page.get_by_text("Strong.")).to_be_visible()
    page.get_by_label("Current password", exact=True).fill(PASSWORD)
    page.get_by_label("Keep API tokens").check()
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("Your password was changed. All other devices were signed out.")).to_be_visible()


@pytest.mark.long
def test_an_account_at_an_openid_provider_is_linked_used_and_unlinked(
    chromium: Browser, new_page: NewPage, shared_server: LiveServer
) -> None:
    # Not a watched page: it visits the provider.
    context = chromium.new_context(
        base_url=shared_server.address, viewport={"width": DESKTOP[0], "height": DESKTOP[1]}
    )
    page = context.new_page()
    try:
        set_up(page, shared_server)
        page.goto("/settings")
        page.get_by_role("button", name="Link Example ID").click()
        _agree(page)
        expect(page.get_by_text("You can now sign in with Example ID.")).to_be_visible()
        expect(page.get_by_role("button", name="Unlink Example ID")).to_be_visible()
        context.clear_cookies()
        page.goto("/auth")
        page.get_by_role("link", name="Continue with Example ID").click()
        _agree(page)
        expect(page).to_have_url(f"{shared_server.address}/dashboard")
        page.goto("/settings")
        page.get_by_role("button", name="Unlink Example ID").click()
        page.get_by_role("alertdialog").or_(page.get_by_role("dialog")).get_by_role(
            "button", name="Unlink account"
        ).click()
        expect(page.get_by_text("Link an account to sign in with it")).to_be_visible()
        context.clear_cookies()
        page.goto("/auth")
        page.get_by_role("link", name="Continue with Example ID").click()
        _agree(page)
        expect(page.get_by_text("An account with this email address already exists")).to_be_visible()
    finally:
        context.close()


def _agree(page: Page) -> None:
    """Agree at the provider, as its one person."""
    page.get_by_role("button", name="ada", exact=True).click()


def test_what_was_typed_stays_when_the_other_tab_is_chosen(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    page.context.clear_cookies()
    page.goto("/auth")
    page.get_by_label("Email").fill("grace@example.org")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("tab", name="Sign up").click()
    expect(page.get_by_label("Email")).to_have_value("grace@example.org")
    page.get_by_label("Name").fill("Grace Hopper")
    page.get_by_role("tab", name="Sign in").click()
    expect(page.get_by_label("Password", exact=True)).to_have_value(PASSWORD)
    page.get_by_role("tab", name="Sign up").click()
    expect(page.get_by_label("Name")).to_have_value("Grace Hopper")


def test_a_sign_in_that_expired_offers_to_start_again_only(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    page.goto("/auth/second-factor")
    expect(page.get_by_role("alert")).to_contain_text("expired")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    page.get_by_role("link", name="Back to sign in").click()
    page.wait_for_url("**/auth")


@pytest.mark.long
@EVERY_SIZE
def test_a_picture_is_added_shown_and_removed(
    new_page: NewPage, own_server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size)
    set_up(page, own_server)
    page.goto("/settings")
    expect(page.get_by_role("button", name="Add a picture")).to_be_visible()
    page.get_by_label("Choose a picture").set_input_files(
        {"name": "me.svg", "mimeType": "image/png", "buffer": b"<svg onload='alert(1)'/>"}
    )
    expect(page.get_by_role("alert")).to_contain_text("PNG, JPEG, WebP or GIF")
    photo = {"name": "me.png", "mimeType": "image/png", "buffer": image_file("PNG", (800, 600))}
    page.get_by_label("Choose a picture").set_input_files(photo)  # type: ignore[arg-type]
    expect(page.get_by_role("button", name="Remove picture")).to_be_visible()
    pictures = page.locator("img[src^='/api/users/']")
    # The one beside the field: that of the side bar is in a closed menu on a phone.
    own = page.get_by_role("main").locator(pictures)
    expect(own).to_be_visible()
    assert own.evaluate("image => image.decode().then(() => image.naturalWidth)") == 256
    assert flaws_on_every_screen(page) == []

    page.goto("/settings?tab=people")
    expect(page.get_by_role("main").locator("img[src^='/api/users/']")).to_be_visible()
    page.goto("/settings")
    page.get_by_role("button", name="Remove picture").click()
    expect(page.get_by_role("button", name="Add a picture")).to_be_visible()
    expect(pictures).to_have_count(0)
