"""`bloom scripts inspect`: values with their lines, as text and as JSON; never runs anything."""

import json
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from gpubloom.cli.app import app
from tests.errors import printed

EXAMPLES = Path(__file__).parents[1] / "scripts" / "examples"


def inspect_script(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["scripts", "inspect", *arguments], env={"COLUMNS": "160"})


def test_values_are_shown_with_how_sure_they_are_and_their_lines() -> None:
    done = inspect_script(str(EXAMPLES / "hf_trainer_gpt2.py"))
    assert done.exit_code == 0, done.output
    assert "774,030,080" in done.output
    assert "line 18: per_device_train_batch_size=4," in done.output
    assert "assumed" in done.output
    assert "checkpoints: transformers.Trainer; resumes with resume_from_checkpoint=True" in done.output
    assert "packages: datasets, transformers" in done.output


def test_its_own_command_line_and_configs_beside_it_count() -> None:
    done = inspect_script(
        str(EXAMPLES / "nanogpt" / "train.py"),
        "--json",
        "--",
        "config/train_shakespeare_char.py",
        "--max_iters=7",
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["parameters"]["value"], found["iterations"]["value"]) == (10_770_816, 7)
    assert found["batch"]["evidence"][0] == {
        "line": 7, "text": "batch_size = 64", "file": "config/train_shakespeare_char.py",
    }  # fmt: skip


def test_a_script_that_does_not_parse_ends_in_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfor i in range(3)\n")
    done = inspect_script(str(script))
    assert done.exit_code == 2
    assert printed(done.stderr) == ["not_python"]
    assert "line 2" in done.stderr
    assert inspect_script(str(tmp_path / "nothing.py")).exit_code == 2


def test_what_looks_like_markup_is_shown_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nbatch_size = 4  # [bold]not[/bold] [/]\n")
    done = inspect_script(str(script))
    assert done.exit_code == 0, done.output
    assert "[bold]not[/bold] [/]" in done.output
