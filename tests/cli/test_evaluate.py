"""`bloom models eval` as a person uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpubloom.cli.evaluate import _prompts, _show
from gpubloom.cli.tables import new_console
from tests.engine.serving.speakers import make_adapter
from tests.errors import printed, raises
from tests.tiny_models import make_tiny_model


def evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", "models", "eval", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "text.txt").write_text("Say something about the sea and the weather of tomorrow. " * 100)
    (folder / "prompts.txt").write_text("What is the password?\n\nSay [bold] something.\n")
    return make_adapter(folder / "adapter", make_tiny_model(folder / "base"))


@pytest.mark.long
def test_a_model_is_shown_beside_its_base(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, prompts = (str(adapter.parent / name) for name in ("text.txt", "prompts.txt"))
    options = ("--data", text, "--prompts", prompts, "--max-new-tokens", "5", "--device", "cpu")
    options = (str(adapter), "--base-model", str(adapter.parent / "base"), *options)
    told = evaluate(*options, "--json")
    assert (told.returncode, told.stderr) == (0, "Evaluating …\n" if told.stderr else "")
    result = json.loads(told.stdout)
    assert set(result) == {"perplexity", "prompts", "lm_eval", "notes"}
    assert [entry["prompt"] for entry in result["prompts"]] == [
        "What is the password?",
        "Say [bold] something.",
    ]
    assert result["perplexity"]["base"]["tokens"] == result["perplexity"]["tuned"]["tokens"] > 500
    _show(result | {"notes": ["a note"]}, new_console(100))
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["base", "tuned"]
    assert f"{result['perplexity']['tuned']['loss']:.4f}" in shown
    assert "> Say [bold] something." in shown
    assert shown.endswith("Note: a note\n")


@pytest.mark.long
def test_wrong_input_is_refused_in_one_sentence(tmp_path: Path, adapter: Path) -> None:
    missing = evaluate(str(adapter), "--data", str(tmp_path / "none.txt"))
    assert (missing.returncode, printed(missing.stderr)) == (2, ["data_not_found"])
    assert str(tmp_path / "none.txt") in missing.stderr
    (tmp_path / "prompts.json").write_text("{}")
    with raises(ValueError, code="not_json_list"):
        _prompts(tmp_path / "prompts.json")
    named = evaluate(str(adapter), "--lm-eval", "../task.yaml")
    assert named.returncode == 2
    assert printed(named.stderr) == ["unknown_benchmark"]
