"""The card of a real run: written by the command, shown in a notebook, opened from disk."""

import html
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.traincard import Reporter
from gpubloom.traincard.card import CardNotBuiltError, page, render_card, write_card
from tests.errors import raises
from tests.traincard_card.conftest import OpenCard
from tests.traincard_card.example import HOSTILE, example_snapshot

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that was interrupted once and then failed."""
    run = tmp_path / "a run"
    saved = run / "checkpoints/step-00000010"
    saved.mkdir(parents=True)
    (saved / "model.safetensors").write_bytes(b"x" * 2048)
    with Reporter(run, telemetry_seconds=0, attempt=1) as reporter:
        for step in range(20):
            reporter.metrics({"loss": 2 - step / 20}, step=step)
        reporter.checkpoint(saved, step=10, metrics={"eval_loss": 1.5}, best=True)
        reporter.finish("preempted", "SIGTERM")
    reporter = Reporter(run, telemetry_seconds=0, attempt=2, resumed_from_step=10)
    for step in range(10, 30):
        reporter.metrics({"loss": 2 - step / 20, "broken": float("nan")}, step=step)
    reporter.log(HOSTILE)
    reporter.on_exception(ValueError("there is no batch"))
    reporter.close()
    return run


def test_bloom_card_writes_one_file_that_shows_the_run(run_dir: Path, open_card: OpenCard) -> None:
    out = run_dir.parent / "card.html"
    result = CliRunner().invoke(app, ["runs", "card", str(run_dir), "-o", str(out)])
    assert result.exit_code == 0, result.output
    shown = open_card(out.read_text(encoding="utf-8"))
    expect(shown.locator("h1")).to_contain_text("a run")
    expect(shown.locator("#failure")).to_contain_text("ValueError")
    expect(shown.locator("#failure")).to_contain_text("there is no batch")
    expect(shown.locator("#status")).to_contain_text("Restarted once.")
    expect(shown.locator("#status")).to_contain_text("from step 10")
    words = shown.locator('[id="metric-loss"] .plot').get_attribute("aria-label") or ""
    assert "attempt 2" in words
    # The way from the page to the checkpoint, which lies in a folder with a space.
    link = shown.get_by_role("link", name="checkpoints/step-00000010")
    assert link.get_attribute("href") == "a%20run/checkpoints/step-00000010"


def test_bloom_card_refuses_what_is_no_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["runs", "card", str(tmp_path), "-o", str(tmp_path / "card.html")])
    assert result.exit_code == 2
    assert "is not a run directory" in result.output


def test_a_card_that_cannot_be_written_says_why(run_dir: Path) -> None:
    result = CliRunner().invoke(app, ["runs", "card", str(run_dir), "-o", str(run_dir / "no/such/card.html")])
    assert result.exit_code == 2
    assert "error[cannot_write]" in result.stderr


def test_a_page_that_was_not_built_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "STATIC", tmp_path)
    page._parts.cache_clear()
    with raises(CardNotBuiltError, code="card_not_built"):
        render_card(example_snapshot())
    page._parts.cache_clear()


def test_a_card_is_replaced_whole(run_dir: Path) -> None:
    out = run_dir.parent / "card.html"
    out.write_text("older")
    write_card(run_dir, out)
    assert out.read_text().startswith("<!doctype html>")
    assert [path.name for path in run_dir.parent.iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.long
def test_a_notebook_shows_the_card_in_a_frame_that_can_touch_nothing(
    chromium: Browser, tmp_path: Path
) -> None:
    cell = (
        "from gpubloom.traincard import Reporter\n"
        "reporter = Reporter('run', telemetry_seconds=0)\n"
        "reporter.metric('loss', 1.5, step=1)\n"
        "reporter.show()"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = notebook.cells[0].outputs
    shown = str(output.data["text/html"])
    assert 'sandbox="allow-scripts"' in shown
    source = html.unescape(re.findall(r'srcdoc="([^"]*)"', shown)[0])
    assert source.startswith("<!doctype html>")
    page = chromium.new_page()
    page.set_content(shown)
    frame = page.frame_locator("iframe")
    expect(frame.locator("h1")).to_contain_text("run")
    expect(frame.locator('[id="metric-loss"] .legend')).to_contain_text("1.5")
    page.close()


@pytest.mark.long
def test_a_notebook_follows_the_run_while_another_cell_trains(tmp_path: Path) -> None:
    show = (
        "from gpubloom.traincard import Reporter\n"
        "reporter = Reporter('run', telemetry_seconds=0)\n"
        "reporter.show(seconds=0.2)"
    )
    train = (
        "import time\n"
        "for step in range(1, 6):\n"
        "    reporter.metric('loss', 1 / step, step)\n"
        "    time.sleep(0.3)\n"
    )
    end = "reporter.finish()\nreporter.close()\ntime.sleep(1.5)"
    cells = [nbformat.v4.new_code_cell(cell) for cell in (show, train, end)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    pages: list[str] = []

    def look(**_: object) -> None:
        (output,) = [one for one in notebook.cells[0].outputs if one.output_type == "display_data"]
        source = re.findall(r'srcdoc="([^"]*)"', str(output.data["text/html"]))[0]
        pages.append(html.unescape(source))

    client.on_cell_executed = look
    client.execute()
    # One output that changes: empty after its own cell, then with the curve, then ended.
    assert '"name":"train/loss"' not in pages[0]
    assert '"name":"train/loss"' in pages[1]
    assert '"status":"running"' in pages[1]
    assert '"status":"completed"' in pages[2]
    assert "this run is recorded in" not in str(notebook.cells[0].outputs)


def test_the_first_line_in_a_notebook_names_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_ANNOUNCE", "on")
    cell = "from gpubloom.traincard import Reporter\nreporter = Reporter('run', telemetry_seconds=0)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "See it live: reporter.show()" in notebook.cells[0].outputs[0]["text"]
