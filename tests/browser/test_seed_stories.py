"""The documents that asked for this product, as stories: each in its order, with its names and values.

The story of the card of a Metaflow step is in tests/metaflow, beside what starts flows.
"""

import json
import re
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from gpubloom.providers.local.sandbox import why_no_sandbox
from tests.browser.conftest import NewPage, axe_violations
from tests.browser.people import PASSWORD, open_section, open_tab, set_up
from tests.browser.scripts import editor
from tests.cli.test_train import bloom, start
from tests.live_server import LiveServer
from tests.server.test_pictures import image_file
from tests.tiny_models import make_tiny_model

SHARED_APP = True
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
# A training on a busy machine.
SLOW_MS = 300_000


def _completed(page: Page) -> None:
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=SLOW_MS)


def test_the_first_document_alice_trains_a_model_and_downloads_it(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    """GPU Bloom: sign up, project, job, live monitoring, download."""
    set_up(new_page(), live_app)
    # 1. The homepage leads to the auth page, and that by an email to the dashboard.
    page = new_page()
    page.goto("/")
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()
    page.get_by_role("link", name="Create an account").first.click()
    page.get_by_label("Name").fill("Alice Smith")
    page.get_by_label("Email").fill("alice.smith@example.com")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    before = len(live_app.sent_emails)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_text("Confirm your email address", exact=True)).to_be_visible()
    page.goto(live_app.newest_email_link(after=before))
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Confirm and sign in").click()
    expect(page).to_have_url(f"{live_app.address}/dashboard")
    # The profile page: basic information can be seen and changed.
    page.goto("/settings")
    expect(page.get_by_text("alice.smith@example.com").first).to_be_visible()
    photo = {"name": "alice.png", "mimeType": "image/png", "buffer": image_file("PNG")}
    page.get_by_label("Choose a picture").set_input_files(photo)  # type: ignore[arg-type]
    expect(page.get_by_role("button", name="Remove picture")).to_be_visible()

    # 2. A project.
    page.get_by_role("link", name="Projects", exact=True).first.click()
    expect(page.get_by_role("heading", name="Projects", level=1)).to_be_visible()
    expect(page.get_by_text("No projects created yet. Click 'New Project' to start.")).to_be_visible()
    page.get_by_role("button", name="New Project").first.click()
    form = page.get_by_role("dialog")
    form.get_by_role("button", name="Create project").click()
    expect(form.get_by_text("Enter a project name.")).to_be_visible()
    form.get_by_label("Project name").fill("QuantumLeap-130B")
    form.get_by_label("Description").fill(
        "Experimenting with Quantum NLP concepts on a 130B parameter model."
    )
    form.get_by_label("Model architecture").select_option(label="Transformer")
    form.get_by_label("Model size, in billions of parameters").fill("130")
    form.get_by_label("Training data").fill("s3://my-bucket/datasets/quantum-corpus/")
    form.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name="QuantumLeap-130B", level=1)).to_be_visible()
    large = page.url

    # 3. Its job is planned for an H200 with 1536 GB of host memory; a smaller one trains here.
    page.get_by_role("link", name="Start new training job").first.click()
    page.get_by_label("Learning rate", exact=True).fill("0.0001")
    page.get_by_label("Batch size", exact=True).fill("1")
    page.get_by_label("Epochs", exact=True).fill("3")
    page.get_by_text("Optimizer and schedule").click()
    page.get_by_label("Optimizer", exact=True).select_option("adamw")
    page.get_by_label("GPU type").select_option("Other GPU…")
    page.get_by_label("GPU name").fill("H200")
    page.get_by_label("Host memory (GB)").fill("1536")
    expect(page.get_by_label("Plan", exact=True)).to_contain_text("H200, 1,536 GB host")
    assert axe_violations(page) == []

    (live_app.home / "uploads/corpus.txt").write_text("To be, or not to be, that is the question. " * 500)
    page.goto("/projects")
    page.get_by_role("button", name="New Project").first.click()
    form.get_by_label("Project name").fill("QuantumLeap-small")
    form.get_by_label("Model size, in billions of parameters").fill("0.001")
    form.get_by_label("Training data").fill("corpus.txt")
    form.get_by_role("button", name="Create project").click()
    page.get_by_role("link", name="Start new training job").first.click()
    page.get_by_role("tab", name="JSON").click()
    config = {
        "learning_rate": 0.001,
        "batch_size": 8,
        "epochs": 3,
        "max_steps": 60,
        "model": {"preset": "nano"},
    }
    page.get_by_label("Training config").fill(json.dumps(config))
    expect(page.get_by_label("Plan", exact=True).get_by_text("This job fits")).to_be_visible()
    page.get_by_role("button", name="Start training").first.click()

    # 4. The job page follows the run: status, key figures and curves change without a reload.
    expect(page.get_by_role("heading", name="Loss", exact=True).first).to_be_visible(timeout=SLOW_MS)
    _completed(page)
    for title in ("Loss", "Learning rate"):
        expect(page.get_by_role("heading", name=title, exact=True).first).to_be_visible()
    expect(page.get_by_label("Progress", exact=True)).to_contain_text("60")
    # 5. The model is downloaded.
    with page.expect_download() as started:
        page.get_by_role("link", name="Download model").click()
    started.value.save_as(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as content:
        assert any(name.endswith("model.safetensors") for name in content.getnames())
    # The dashboard has both projects and the job; a stranger is led to the auth page.
    page.goto("/dashboard")
    expect(page.get_by_text("QuantumLeap-130B").first).to_be_visible()
    stranger = new_page()
    stranger.goto(large)
    expect(stranger).to_have_url(re.compile("/auth"))


def test_the_second_document_a_model_is_tuned_watched_and_asked(
    new_page: NewPage, live_app: LiveServer, tmp_path: Path
) -> None:
    """LLM fine-tuning: model, dataset, method, launch, monitor, checkpoint browser, inference."""
    page = new_page()
    set_up(page, live_app)
    # 1. Models: a list of supported ones, and one's own, whose tokenizer is checked.
    page.goto("/models")
    for family in ("Llama", "Mistral", "Falcon"):
        expect(page.get_by_role("option", name=family).first).to_be_attached()
    page.get_by_role("button", name="Add a model").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Model id")).to_be_visible()
    dialog.get_by_role("tab", name="Upload").click()
    dialog.get_by_label("Choose a folder").set_input_files(make_tiny_model(tmp_path / "tiny", family="qwen2"))
    dialog.get_by_role("button", name="Upload model").click()
    expect(page.get_by_role("article", name="tiny").get_by_text("can be trained")).to_be_visible()

    # 2. Datasets of the three kinds: size, lines and a preview.
    rows = [{"prompt": f"Where is key {n}?", "completion": "Under the blue stone."} for n in range(200)]
    files = {
        "rows.csv": "prompt,completion\n" + "\n".join(f"{r['prompt']},{r['completion']}" for r in rows),
        "lines.txt": "\n".join(str(r["completion"]) for r in rows),
        "pairs.jsonl": "\n".join(json.dumps(row) for row in rows),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        page.goto("/datasets")
        page.locator("input[type=file]").first.set_input_files(tmp_path / name)
        expect(page.get_by_role("region", name="Preview")).to_contain_text("Under the blue stone.")
        expect(page.get_by_text("200").first).to_be_visible()

    # 3. The method and its parameters.
    page.get_by_role("link", name="Fine-tune on this dataset").click()
    expect(page.get_by_role("heading", name="Fine-tune", level=1)).to_be_visible()
    page.get_by_label("Model", exact=True).select_option(label="tiny")
    for method in ("Full", "QLoRA", "LoRA"):
        expect(page.get_by_role("radio", name=re.compile(f"^{method}")).first).to_be_attached()
    page.get_by_role("radio", name=re.compile("^LoRA")).check(force=True)
    for label, value in (("Epochs", "4"), ("Learning rate", "0.01"), ("Batch size", "4")):
        page.get_by_label(label, exact=label != "Batch size").fill(value)
    page.get_by_label("Max sequence length").fill("64")
    open_section(page, "LoRA adapters")
    page.get_by_label("LoRA rank").fill("8")
    expect(page.get_by_label("Plan", exact=True).get_by_text("This job fits")).to_be_visible()
    open_section(page, "Job name and project")
    page.get_by_label("Job name").fill("Blue stones")

    # 4. and 5. Launched as a process of its own: logs, figures, time left, pause and resume.
    page.get_by_role("button", name="Start training").first.click()
    expect(page.get_by_role("heading", name="Blue stones", level=1)).to_be_visible()
    page.get_by_role("button", name="Pause").click(timeout=SLOW_MS)
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=SLOW_MS)
    page.get_by_role("button", name="Resume").click()
    open_tab(page, "Logs")
    expect(page.get_by_role("log")).to_contain_text("loss", timeout=SLOW_MS)
    _completed(page)
    # 200 rows without those held out for the evaluation, four times, in batches of four.
    progress = page.get_by_label("Progress", exact=True)
    expect(progress).to_contain_text("Time taken")
    assert re.search(r"(\d+)of \1 steps", progress.text_content() or "")

    # 6. The checkpoint browser.
    page.goto("/checkpoints")
    expect(page.get_by_text("Blue stones").first).to_be_visible()
    expect(page.get_by_text("tiny").first).to_be_visible()
    expect(page.get_by_text("pairs.jsonl").first).to_be_visible()
    assert axe_violations(page) == []

    # 7. The sandbox for prompts: token by token.
    page.get_by_text("Blue stones").first.click()
    page.get_by_role("link", name="Open in playground").first.click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("20")
    page.get_by_label("Your message").fill("Where is key 7?")
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=SLOW_MS)
    page.keyboard.press("Enter")
    tuned = page.get_by_role("region", name="Answer of Tuned", exact=True)
    expect(tuned).to_contain_text("blue stone", timeout=SLOW_MS)


@pytest.fixture
def dashboard(chromium: Browser) -> Iterator[Page]:
    """A page of no server of the web app."""
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(SLOW_MS)
    yield page
    context.close()


def _served(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = ""
    while "#token=" not in line:
        line = process.stdout.readline()
        assert line, process.communicate()
    return line.removeprefix("Dashboard: ").strip()


def test_the_fourth_document_a_training_is_served_steered_and_its_checkpoint_converted(
    dashboard: Page, tmp_path: Path
) -> None:
    """Parallel LLM trainer: the command of its README, its dashboard, its checkpoints."""
    (tmp_path / "data").mkdir()
    text = "".join(f"{number} bottles of beer on the wall.\n" for number in range(400))
    (tmp_path / "data/train.txt").write_text(text)
    (tmp_path / "data/eval.txt").write_text(text[:4000])
    # What the README writes, with a model that a CPU trains in seconds.
    command = ["train", "--train-path", "./data/train.txt", "--eval-path", "./data/eval.txt", "--epochs", "5"]
    command += ["--batch-size", "16", "--learning-rate", "1e-3", "--checkpoint-dir", "./checkpoints"]
    command += ["--set", "model.preset=nano", "--set", "model.context_length=32", "--set", "epochs=60"]
    command += ["--serve-metrics", "--run-dir", "run"]
    process = start(*command, folder=tmp_path, METRICS_SERVER_ADDR="127.0.0.1:0")
    try:
        dashboard.goto(_served(process))
        loss = dashboard.locator('[id="metric-loss"] .legend')
        expect(loss).to_contain_text(re.compile(r"\d\.\d"), timeout=SLOW_MS)
        expect(dashboard.locator("#system")).to_contain_text("CPU")
        # Controls: pause, resume, another learning rate.
        dashboard.get_by_role("textbox", name="Learning rate").fill("0.0005")
        dashboard.get_by_role("button", name="Apply settings").click()
        dashboard.get_by_role("button", name="Pause").click()
        expect(dashboard.locator("h1 .badge")).to_have_text("Paused", timeout=SLOW_MS)
        dashboard.get_by_role("button", name="Resume").click()
        expect(dashboard.locator("h1 .badge")).to_have_text("Running", timeout=SLOW_MS)
        expect(dashboard.locator("#checkpoints")).to_contain_text("step", timeout=SLOW_MS)
        dashboard.get_by_role("button", name="Save checkpoint").click()
        # Ctrl+C ends the run; what was trained stays.
        process.send_signal(signal.SIGINT)
        process.wait(timeout=SLOW_MS / 1000)
    finally:
        process.kill()
        process.communicate()
    assert list((tmp_path / "checkpoints/run").glob("step-*"))
    # Checkpoints in Torch and JSON.
    for form in ("torch", "json"):
        done = bloom("runs", "convert-checkpoint", "run", f"as-{form}", "--to", form, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert list((tmp_path / f"as-{form}").iterdir())


# The document's own example, and a loop that a CPU without torch can run.
NANOGPT = """\
# Typical nanoGPT training script
import torch
from model import GPT

# Requires:
# - GPU with 8-16GB VRAM
# - 2-8 hours runtime
# - PyTorch with CUDA
# - Access to datasets (shakespeare, openwebtext)
# - Ability to save checkpoints
# - TensorBoard logging

model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768)
model.to('cuda')
# ... training loop
"""
LOOP = """\
epochs = 3
for epoch in range(1, epochs + 1):
    print(f"Epoch {epoch}/{epochs} loss: {2 / epoch:.4f}", flush=True)
open("ckpt.pt", "wb").write(b"weights")
"""


@pytest.mark.skipif(why_no_sandbox() is not None, reason=f"no sandbox here: {why_no_sandbox()}")
def test_the_fifth_document_a_script_is_priced_submitted_and_followed(
    new_page: NewPage, live_app: LiveServer
) -> None:
    """External GPU services: requirements, providers with costs, one click, progress, artifacts."""
    page = new_page()
    set_up(page, live_app)
    # The editor begins with a template; requirements are detected while one types.
    page.goto("/script")
    page.get_by_role("button", name="Character-level GPT").click()
    needs = page.get_by_label("Script requirements")
    expect(needs).to_contain_text("derived")
    page.get_by_label("Arguments").fill("")
    editor(page).fill(NANOGPT)
    expect(needs).to_contain_text("stated")
    expect(needs.get_by_role("textbox", name="Memory per GPU, in GB")).to_have_attribute("placeholder", "16")
    expect(needs.get_by_role("textbox", name="Hours")).to_have_attribute("placeholder", "4")
    # Providers are compared with their costs, and one is recommended.
    page.get_by_role("button", name=re.compile("Show all")).click()
    for provider in ("Modal", "Lambda", "Paperspace"):
        expect(page.get_by_role("radio", name=re.compile(provider)).first).to_be_attached()
    expect(page.get_by_text("Recommended").first).to_be_visible()
    assert axe_violations(page) == []
    # One click on what is free; what costs money asks first.
    editor(page).fill(LOOP)
    page.get_by_label("Job name").fill("nanoGPT")
    page.get_by_role("radio", name=re.compile("This machine")).check(force=True)
    page.get_by_role("button", name="Start the job").first.click()
    expect(page.get_by_role("heading", name="nanoGPT")).to_be_visible()
    # Status, progress from the printed lines, logs, and the files it made.
    _completed(page)
    expect(page.get_by_label("Progress", exact=True)).to_contain_text("3")
    expect(page.get_by_role("table", name="Output files")).to_contain_text("ckpt.pt")
    open_tab(page, "Logs")
    expect(page.get_by_role("log")).to_contain_text("Epoch 3/3 loss: 0.6667")
    # Credits and a budget are stated where providers are.
    page.goto("/providers")
    expect(page.get_by_role("heading", name="Remaining credits")).to_be_visible()
    expect(page.get_by_role("button", name="Set a budget")).to_be_visible()
