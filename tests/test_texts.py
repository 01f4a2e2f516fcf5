"""`tools/texts.py` finds what people read, and leaves out what only programs read."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def texts():
    spec = importlib.util.spec_from_file_location("texts", ROOT / "tools/texts.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["texts"] = module
    spec.loader.exec_module(module)
    return module


def test_python_texts_are_sentences_and_the_values_of_help_and_description(texts):
    source = '''
"""What the file is for."""
QUERY = "SELECT name FROM jobs WHERE id = 1"
def show(job: str = typer.Argument(help="Job.")) -> None:
    """Show one job."""
    key = "job_id"
    raise InputError("not_found", f"There is no job {job!r} "
        "here.")
'''
    found = [text.text for text in texts.python_texts(source, "src/gpubloom/cli/show.py")]
    assert sorted(found) == ["Job.", "Show one job.", "There is no job {} here."]


def test_texts_of_the_web_app_are_what_is_rendered_and_what_labels_say(texts, tmp_path):
    (tmp_path / "ui/src").mkdir(parents=True)
    (tmp_path / "ui/src/page.tsx").write_text("""
import { Card } from "some-package/with words";
const label = { label: "Loss", key: "train/loss", classes: "flex gap-2 text-dim" };
export const Page = () => (
  <Card className="flex gap-2" aria-label="Curves">
    No curves of <b>{label.label}</b> yet.
    {label ? "Waiting" : null}
  </Card>
);
""")
    found = {text.text for text in texts.web_texts(tmp_path)}
    assert found == {"Loss", "Curves", "No curves of {} yet. {}", "Waiting"}
