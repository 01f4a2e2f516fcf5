"""Sample generations over steps on the job page: a slider, and the answer before training beside it."""

import pytest
from playwright.sync_api import expect

from gpubloom.traincard import Reporter
from tests.browser.conftest import DESKTOP, PHONE, NewPage, flaws_on_every_screen
from tests.browser.people import create_project, open_tab, set_up
from tests.browser.test_job_tabs import PROMPTS, TALLEST, add_job
from tests.live_server import LiveServer

STEPS = (0, 200, 400, 600)


@pytest.mark.long
def test_answers_over_steps_are_compared_with_the_model_before_training(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    set_up(page, own_server)
    create_project(page, "Support assistant", "0.001", "corpus.txt")
    path = add_job(own_server)
    with Reporter(own_server.home / "runs" / path.rpartition("/")[2], telemetry_seconds=0) as reporter:
        for step in STEPS:
            for prompt in PROMPTS:
                known = f"At step {step} I can look up the second charge and refund it for you today. " * 5
                reporter.sample(prompt, "charge charge charge\n" * 40 if step == 0 else known, step)
    page.goto(path)
    open_tab(page, "Samples")
    samples = page.get_by_role("region", name="Samples over steps")
    expect(samples).to_contain_text(PROMPTS[0])
    expect(samples.get_by_role("status")).to_have_text("Step 600")
    expect(samples.get_by_role("group", name="Answer of Before training").first).to_contain_text("charge")
    expect(samples.get_by_role("group", name="Answer of Step 600").first).to_contain_text("At step 600")
    slider = samples.get_by_role("slider", name="Step of the samples")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(samples.get_by_role("group", name="Answer of Step 400").first).to_contain_text("At step 400")
    samples.get_by_role("combobox", name="Compare with").select_option("200")
    expect(samples.get_by_role("group", name="Answer of Step 200").first).to_contain_text("At step 200")
    samples.get_by_role("button", name="Next sample").click()
    expect(samples.get_by_role("status")).to_have_text("Step 600")
    assert flaws_on_every_screen(page) == []
    for size in (PHONE, DESKTOP):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollHeight") <= TALLEST[size], size
