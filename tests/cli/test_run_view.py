"""Commands that take a run say whether the folder is missing or is something else."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from tests.errors import printed

COMMANDS = [
    ("runs", "card"),
    ("runs", "watch"),
    ("runs", "serve"),
    ("train", "--resume"),
    ("runs", "compare"),
    ("runs", "mirror"),
]


def bloom(command: tuple[str, ...], folder: Path) -> str:
    more = {"mirror": ["memory://runs"], "compare": [str(folder.parent / "another")]}.get(command[-1], [])
    done = CliRunner().invoke(app, [*command, str(folder), *more])
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_that_is_not_there_is_called_missing(command: tuple[str, ...], tmp_path: Path) -> None:
    said = bloom(command, tmp_path / "gone")
    assert printed(said) == ["run_not_found"]
    assert str(tmp_path / "gone") in said


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_that_is_no_run_is_told_what_it_lacks(command: tuple[str, ...], tmp_path: Path) -> None:
    said = bloom(command, tmp_path)
    assert printed(said) == ["run_not_found"]
    assert str(tmp_path) in said
