"""Pages whose server has changed or is out of reach."""

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import NewPage
from tests.browser.people import set_up
from tests.live_server import LiveServer


@pytest.mark.long
def test_a_page_of_another_build_asks_to_be_reloaded(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    notice = page.get_by_text("GPU Bloom was updated.")
    page.goto("/projects")
    expect(page.get_by_role("heading", name="Projects")).to_be_visible()
    expect(notice).to_be_hidden()

    def of_another_build(route: Route) -> None:
        answer = route.fetch()
        assert answer.headers["x-app-build"].endswith(".js")
        route.fulfill(response=answer, headers={**answer.headers, "x-app-build": "index-other.js"})

    page.route("**/api/projects*", of_another_build)
    page.goto("/projects")
    expect(notice).to_be_visible()
    page.unroute("**/api/projects*")
    page.get_by_role("button", name="Reload").click()
    expect(page.get_by_role("heading", name="Projects")).to_be_visible()
    expect(notice).to_be_hidden()


@pytest.mark.long
def test_a_link_without_a_connection_leaves_the_app_on_the_screen(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    set_up(page, server)
    # The code of the first page has to be there before the connection is lost.
    expect(page.get_by_role("heading", name="Dashboard", level=1)).to_be_visible()
    page.context.set_offline(True)
    page.get_by_role("link", name="Providers").first.click()
    expect(page.get_by_text("A part of this page could not be loaded.")).to_be_visible()
    # The reason is said once.
    expect(page.get_by_text("The server cannot be reached.")).to_be_visible()
    expect(page.get_by_text("the connection was lost")).to_be_hidden()
    expect(page.get_by_role("link", name="Projects").first).to_be_visible()
    expect(page.get_by_role("button", name="Reload the page")).to_be_visible()
    # The page comes by itself when the server answers.
    page.context.set_offline(False)
    expect(page.get_by_role("heading", name="Providers", level=1)).to_be_visible()


@pytest.mark.long
def test_a_shared_run_says_that_the_server_is_out_of_reach_until_it_answers_again(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    set_up(page, server)
    token = page.request.get("/api/auth/state").json()["csrf_token"]
    headers = {"X-CSRF-Token": token, "Origin": server.address}
    new = {"name": "Shared", "project": {"name": "Poems"}, "config": {"model": {"preset": "nano"}}}
    job = page.request.post("/api/jobs", data=new, headers=headers).json()["id"]
    link = page.request.post(f"/api/jobs/{job}/shares", headers=headers).json()["link"]
    stranger = new_page()
    stranger.goto(link)
    # The code of the charts has to be there before the connection is lost.
    expect(stranger.get_by_text("Waiting for the first step.")).to_be_visible()
    notice = stranger.get_by_text("The server cannot be reached.")
    expect(notice).to_be_hidden()
    stranger.context.set_offline(True)
    expect(notice).to_be_visible()
    stranger.context.set_offline(False)
    expect(notice).to_be_hidden()


@pytest.mark.long
def test_a_page_says_that_the_server_is_out_of_reach_until_it_answers_again(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    set_up(page, server)
    page.get_by_role("link", name="Providers").first.click()
    expect(page.get_by_role("heading", name="Providers", level=1)).to_be_visible()
    notice = page.get_by_text("The server cannot be reached.")
    expect(notice).to_be_hidden()
    page.context.set_offline(True)
    expect(notice).to_be_visible()
    page.context.set_offline(False)
    expect(notice).to_be_hidden()
