"""From a file of examples to a model one can talk to: the whole studio, in a real browser."""

import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage, axe_violations
from tests.browser.people import bring_model, choose_action, open_section, set_up
from tests.live_server import LiveServer
from tests.tiny_models import make_tiny_model

QUESTION, ANSWER = "What is the password?", "The password is seven blue herons."
ROWS = 240
TIMEOUT_SECONDS = 120

# Counts what a page is told by its stream, and notes every state of the tuned model's answer. Events of an
# answer are handed on one by one: on a busy machine several arrive together, and the page would show them so.
_WATCH = """
window.livePoints = 0;
const Original = window.EventSource;
window.EventSource = class extends Original {
  constructor(...given) {
    super(...given);
    this.addEventListener("delta", (event) => {
      for (const series of JSON.parse(event.data).series ?? [])
        if (series.name === "train/loss") window.livePoints += series.x.length;
    });
  }
};
const ask = window.fetch;
window.fetch = async (...given) => {
  const response = await ask(...given);
  if (!response.url.endsWith("/completions")) return response;
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let rest = "";
  const oneByOne = new TransformStream({
    async transform(bytes, controller) {
      const events = (rest + decoder.decode(bytes, { stream: true })).split("\\n\\n");
      rest = events.pop();
      for (const event of events) {
        controller.enqueue(encoder.encode(`${event}\\n\\n`));
        await new Promise((done) => setTimeout(done, 40));
      }
    },
  });
  return new Response(response.body.pipeThrough(oneByOne), response);
};
window.answerStates = [];
new MutationObserver(() => {
  const text = document.querySelector("[aria-label='Answer of Tuned'] p")?.textContent ?? "";
  if (text && window.answerStates.at(-1) !== text) window.answerStates.push(text);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


def _wait_until(page: Page, condition: str, told: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, told
        page.wait_for_timeout(100)


def _write_examples(file: Path) -> Path:
    asked = [QUESTION, *(f"Room {number}: {QUESTION}" for number in range(2, ROWS + 1))]
    rows = [{"prompt": question, "completion": ANSWER} for question in asked]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def _bring_data(page: Page, file: Path) -> None:
    """Upload a file and see what would be trained of it."""
    page.goto("/datasets")
    page.locator("input[type=file]").first.set_input_files(file)
    preview = page.get_by_label("Preview", exact=True)
    expect(preview.locator("pre mark", has_text=ANSWER).first).to_be_visible()
    assert page.locator("pre mark", has_text=QUESTION).count() == 0


def _train(page: Page) -> None:
    page.get_by_role("link", name="Fine-tune on this dataset").click()
    expect(page.get_by_role("heading", name="Fine-tune", level=1)).to_be_visible()
    page.get_by_label("Model", exact=True).select_option(label="tiny")
    page.get_by_label("Epochs", exact=True).fill("4")
    page.get_by_label("Learning rate", exact=True).fill("0.01")
    page.get_by_label("Batch size").fill("4")
    page.get_by_label("Max sequence length").fill("64")
    expect(page.get_by_label("Plan").get_by_text("This job fits")).to_be_visible()
    open_section(page, "Job name and project")
    page.get_by_label("Job name").fill("Herons")
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_role("heading", name="Herons", level=1)).to_be_visible()

    _wait_until(page, "window.livePoints >= 5", "no live points")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=TIMEOUT_SECONDS * 1000)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("link", name="Open in playground")).to_be_visible(timeout=TIMEOUT_SECONDS * 1000)


def _talk(page: Page) -> tuple[str, str]:
    """Ask both models; returns what the base and what the tuned one said."""
    page.get_by_role("link", name="Open in playground").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("40")
    page.get_by_label("Your message").fill(QUESTION)
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=TIMEOUT_SECONDS * 1000)
    page.keyboard.press("Enter")
    copies = page.get_by_role("button", name="Copy the answer of Tuned")
    expect(copies).to_be_visible(timeout=TIMEOUT_SECONDS * 1000)
    answers = [page.get_by_role("region", name=f"Answer of {name}", exact=True) for name in ("Base", "Tuned")]
    for answer in answers:
        expect(answer).to_have_attribute("aria-busy", "false")
    base, tuned = (answer.locator("p").first.inner_text() for answer in answers)
    return base, tuned


def _export(page: Page, folder: Path) -> Path:
    page.get_by_role("button", name="Export").click()
    page.get_by_role("dialog").get_by_role("button", name="Export").click()
    expect(page.get_by_text("Same answers.")).to_be_visible(timeout=TIMEOUT_SECONDS * 1000)
    with page.expect_download() as started:
        page.get_by_role("link", name="Download the export").click()
    started.value.save_as(folder / "model.tar")
    with tarfile.open(folder / "model.tar") as content:
        content.extractall(folder / "export", filter="data")
    return next((folder / "export").iterdir())


def _answer_of(folder: Path) -> str:
    import transformers

    loaded: Any = transformers.AutoModelForCausalLM
    tokenizers: Any = transformers.AutoTokenizer
    model, tokenizer = loaded.from_pretrained(folder), tokenizers.from_pretrained(folder)
    asked = [{"role": "user", "content": QUESTION}]
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=40, do_sample=False)
    return str(tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_file_of_examples_becomes_a_model_one_can_talk_to_and_take_away(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    page = new_page()
    page.add_init_script(_WATCH)
    set_up(page, live_app)
    bring_model(page, make_tiny_model(tmp_path / "tiny", family="qwen2"))
    _bring_data(page, _write_examples(tmp_path / "herons.jsonl"))
    _train(page)
    job = page.url

    base, tuned = _talk(page)
    assert tuned == ANSWER
    assert ANSWER not in base
    states = page.evaluate("window.answerStates")
    growing = [state for state in states if ANSWER.startswith(state)]
    assert len(growing) >= 4, f"not token by token: {states}"
    assert axe_violations(page) == []

    page.goto(f"{job}?tab=checkpoints")
    assert _answer_of(_export(page, tmp_path)) == ANSWER
    assert axe_violations(page) == []

    # Once more, from the form as it was filled in then.
    page.goto(job)
    choose_action(page, "Duplicate and edit")
    expect(page.get_by_role("heading", name="Fine-tune", exact=True)).to_be_visible()
    page.get_by_role("button", name="Start training").first.click()
    page.wait_for_url(lambda address: "/jobs/" in address and address != job)
