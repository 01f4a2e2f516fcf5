"""From the one-time link to two people who cannot see each other's projects."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import NewPage
from tests.browser.people import create_project, set_up, sign_in, sign_up
from tests.live_server import LiveServer


def test_the_first_visit_leads_to_an_admin_and_the_link_works_once(
    new_page: NewPage, own_server: LiveServer
) -> None:
    stranger = new_page()
    stranger.goto("/")
    expect(stranger.get_by_text("This server has no account yet")).to_be_visible()

    page = new_page()
    set_up(page, own_server)
    page.goto("/settings")
    expect(page.get_by_text("Administrator").first).to_be_visible()

    stranger.goto(own_server.setup_link)
    expect(stranger.get_by_text("This server is already set up.")).to_be_visible()


def test_a_project_is_created_edited_deleted_and_hidden_from_others(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    email = set_up(page, server)

    project = create_project(page, "QuantumLeap-130B", "130", "s3://my-bucket/datasets/quantum-corpus/")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Project name").fill("QuantumLeap-131B")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("heading", name="QuantumLeap-131B", level=1)).to_be_visible()

    # Signed out, the page asks to sign in and comes back to where one was.
    with page.expect_response("**/api/auth/sign-out"):
        page.get_by_role("button", name="Sign out").first.click()
    page.goto("/projects")
    expect(page).to_have_url(re.compile(r"/auth\?next="))
    sign_in(page, email)
    expect(page).to_have_url(f"{server.address}/projects")
    expect(page.get_by_text("QuantumLeap-131B")).to_be_visible()

    other = new_page()
    sign_up(other, server, "Grace Hopper", "grace@example.org")
    other.goto("/projects")
    expect(other.get_by_text("No projects created yet")).to_be_visible()
    other.goto(project)
    expect(other.get_by_text("There is no project at this address")).to_be_visible()
    answer = other.request.get(f"/api/projects/{project.rpartition('/')[2]}")
    assert (answer.status, answer.json()["code"]) == (404, "not_found")
    assert other.request.get("/api/projects").json() == {"items": [], "total": 0}

    page.goto(project)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(f"{server.address}/projects")
    expect(page.get_by_text("No projects created yet")).to_be_visible()


@pytest.mark.long
def test_a_new_project_can_be_begun_while_the_list_is_still_loading(
    new_page: NewPage, server: LiveServer
) -> None:
    page = new_page()
    set_up(page, server)

    def slowly(route: Route) -> None:
        page.wait_for_timeout(500)
        route.continue_()

    page.route("**/api/projects?*", slowly)
    page.goto("/projects", wait_until="commit")
    page.get_by_role("button", name="New project").first.click()
    expect(page.get_by_text("No projects created yet")).to_be_visible()
    expect(page.get_by_role("dialog").get_by_label("Project name")).to_be_visible()


def test_wrong_input_is_said_at_the_field_and_nothing_is_lost(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    page.goto("/projects")
    page.get_by_role("button", name="New project").first.click()
    form = page.get_by_role("dialog")
    form.get_by_role("button", name="Create project").click()
    expect(form.get_by_label("Project name")).to_be_focused()
    form.get_by_label("Project name").fill("Secrets")
    form.get_by_label("Model size, in billions of parameters").fill("1.5")
    form.get_by_label("Training data").fill("/etc/passwd")
    form.get_by_role("button", name="Create project").click()
    expect(form.get_by_text("The server may not read this path.")).to_be_visible()
    expect(form.get_by_label("Project name")).to_have_value("Secrets")


@pytest.mark.long
def test_an_ended_session_asks_again_without_losing_the_form(new_page: NewPage, server: LiveServer) -> None:
    page = new_page()
    set_up(page, server)
    page.goto("/projects")
    page.get_by_role("button", name="New project").first.click()
    form = page.get_by_role("dialog")
    form.get_by_label("Project name").fill("Kept")
    form.get_by_label("Model size, in billions of parameters").fill("3")
    page.context.clear_cookies()
    form.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("dialog").get_by_label("Password", exact=True)).to_be_visible()
    page.get_by_role("dialog").get_by_label("Password", exact=True).fill("a walk in the quiet garden")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Kept", level=1)).to_be_visible()
