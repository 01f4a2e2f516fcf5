"""A person's own folder, from the browser: what it needs, where it could run, and how it gets on."""

import re

import pytest
from playwright.sync_api import Route, expect

from gpubloom.providers.local.sandbox import why_no_sandbox
from tests.browser.conftest import NewPage, flaws_on_every_screen
from tests.browser.people import open_tab, set_up
from tests.browser.scripts import bring, editor, expect_text, start
from tests.live_server import LiveServer

SHARED_APP = True


@pytest.mark.long
@pytest.mark.skipif(why_no_sandbox() is not None, reason=f"no sandbox here: {why_no_sandbox()}")
def test_a_new_person_runs_a_folder_on_this_machine(new_page: NewPage, live_app: LiveServer) -> None:
    page = new_page()
    set_up(page, live_app)
    bring(page)
    needs = page.get_by_label("Script requirements")
    page.get_by_label("Arguments").fill("--max_iters=60 --eval_interval=20")
    expect(needs.get_by_text("60", exact=True)).to_be_visible()

    needs.get_by_role("button", name="Batch size: show line").click()
    expect(editor(page)).to_be_focused()
    assert page.evaluate("getSelection().toString()") == "batch_size = 8"

    modal = page.get_by_role("radio", name=re.compile("Modal · T4"))
    expect(modal).to_be_attached()
    memory = needs.get_by_role("textbox", name="Memory per GPU, in GB")
    memory.fill("24")
    expect(modal).not_to_be_attached()
    memory.fill("")
    expect(modal).to_be_attached()
    expect(page.get_by_role("radio", name=re.compile("This machine"))).to_be_checked()
    assert flaws_on_every_screen(page) == []

    start(page)
    expect(page.get_by_text("Completed").first).to_be_visible()
    expect(page.get_by_label("Progress", exact=True)).to_contain_text("60")
    expect(page.get_by_role("table", name="Output files")).to_contain_text("out/ckpt.pt")
    assert flaws_on_every_screen(page) == []
    open_tab(page, "Logs")
    expect(page.get_by_role("log")).to_contain_text("step 40: train loss")
    assert flaws_on_every_screen(page) == []


@pytest.mark.long
@pytest.mark.skipif(why_no_sandbox() is not None, reason=f"no sandbox here: {why_no_sandbox()}")
def test_a_script_that_failed_is_corrected_and_runs_again(new_page: NewPage, live_app: LiveServer) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/script")
    page.get_by_role("button", name="Write or paste a script").click()
    editor(page).fill("import no_such_module")
    page.get_by_label("Arguments").fill("--lr 3e-4")
    start(page, "train.py")
    expect(page.get_by_text("No module named 'no_such_module'").first).to_be_visible()

    page.get_by_role("link", name="Duplicate and edit").click()
    expect_text(editor(page), "import no_such_module")
    expect(page.get_by_label("Arguments")).to_have_value("--lr 3e-4")
    editor(page).fill("print('corrected')")
    start(page, "train.py")
    expect(page.get_by_text("Completed").first).to_be_visible()
    failed = page.url

    # Another draft is not replaced without a question.
    page.goto("/script")
    page.get_by_role("button", name="Write or paste a script").click()
    editor(page).fill("print('a draft')")
    page.goto(f"/script?like={failed.rpartition('/')[2]}")
    question = page.get_by_role("alertdialog", name="Replace your draft?")
    question.get_by_role("button", name="Keep draft").click()
    expect_text(editor(page), "print('a draft')")
    page.goto(f"/script?like={failed.rpartition('/')[2]}")
    question.get_by_role("button", name="Replace draft").click()
    expect_text(editor(page), "print('corrected')")


@pytest.mark.long
def test_what_cannot_be_read_is_said_and_nothing_is_started(new_page: NewPage, live_app: LiveServer) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/script")
    page.get_by_role("button", name="Start the job").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose a template")
    page.get_by_role("button", name="Character-level GPT").click()
    expect(page.get_by_label("Arguments")).to_have_value(re.compile("--n_layer=4"))
    editor(page).fill("import torch\nx = (1,\n")
    expect(page.get_by_label("Script requirements")).to_contain_text("line 2")
    page.get_by_role("button", name="Start the job").first.click()
    expect(page.get_by_role("alert")).to_contain_text("line 2")
    expect(page).to_have_url(f"{live_app.address}/script")

    page.get_by_label("Arguments").fill("--n_layer=2")
    page.reload()
    expect_text(editor(page), "import torch\nx = (1,\n")
    expect(page.get_by_label("Arguments")).to_have_value("--n_layer=2")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{live_app.address}/")
    page.wait_for_timeout(500)  # Longer than the page waits before it writes a draft down.
    assert page.evaluate("sessionStorage.getItem('script draft')") is None


@pytest.mark.long
def test_the_editor_can_be_used_and_left_by_keyboard(new_page: NewPage, live_app: LiveServer) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/script")
    page.get_by_role("button", name="Write or paste a script").click()
    editor(page).focus()
    page.keyboard.type("for i in range(3):")
    page.keyboard.press("Enter")
    page.keyboard.type("print(i)")
    page.keyboard.press("Tab")
    expect_text(editor(page), "for i in range(3):\n        print(i)")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(editor(page)).not_to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(editor(page)).to_be_focused()
    page.keyboard.press("ControlOrMeta+f")
    expect(page.get_by_role("textbox", name="Find", exact=True)).to_be_focused()
    assert flaws_on_every_screen(page) == []


@pytest.mark.long
def test_a_training_job_for_a_rented_machine_says_what_it_lacks(
    new_page: NewPage, live_app: LiveServer
) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto("/jobs/new")
    page.get_by_label("New project name").fill("Elsewhere")
    page.locator("summary", has_text="Engine").click()
    page.get_by_label("Training processes").fill("2")
    plan = page.get_by_label("Plan")
    expect(plan.get_by_text("This job fits")).to_be_visible()
    page.locator("summary", has_text="Rent an instance").click()
    expect(page.get_by_label("Required GPU memory, in GB")).not_to_have_value("")
    expect(page.get_by_role("radio", name=re.compile("This machine"))).to_be_checked()
    page.get_by_role("radio", name=re.compile("Modal")).check(force=True)
    expect(page.get_by_text("a new plan is made for the instance you chose")).to_be_visible()
    assert flaws_on_every_screen(page) == []
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_role("alert")).to_contain_text("Modal is not connected. Enter your credentials")
    expect(page).to_have_url(f"{live_app.address}/jobs/new")


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "shown", "question", "field", "value"),
    [
        ("/jobs/new", "This job fits", "**/api/plan", "Batch size", "64"),
        pytest.param(
            *("/script", "derived", "**/api/requirements", "Arguments", "--n_layer=2"), marks=pytest.mark.long
        ),
    ],
)
def test_a_result_stays_readable_while_the_next_one_is_computed(
    new_page: NewPage, live_app: LiveServer, path: str, shown: str, question: str, field: str, value: str
) -> None:
    page = new_page()
    set_up(page, live_app)
    page.goto(path)
    if path == "/script":
        page.get_by_role("button", name="Character-level GPT").click()
    else:
        page.get_by_label("New project name").fill("Out of date")
    result = page.get_by_text(shown).first
    expect(result).to_be_visible()
    held: list[Route] = []
    page.route(question, lambda route: held.append(route))
    with page.expect_request(question):
        page.get_by_label(field).fill(value)
    expect(result).to_be_visible()
    assert flaws_on_every_screen(page) == []
    for request in held:
        request.continue_()
