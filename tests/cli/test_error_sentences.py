"""What a person reads who types something wrong: which input it was, and what to do next."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from tests.errors import printed

NO_SERVER: Mapping[str, str] = {"BLOOM_TOKEN": "bloom_x"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.txt").write_text("no python here\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["train", ""], "string_too_short", ["data.train_path is empty"]),
        (["train", "--learning-rate", "-1"], "greater_than", ["-1.0", "must be above 0"]),
        (["train", "--learning-rate", "nan"], "finite_number", ["nan", "is not a finite number"]),
        (["train", "--processes", "many"], "invalid_processes", ["'many'", "auto"]),
        (["train", "--config", "folder"], "unreadable_file", ["folder cannot be read: Is a directory."]),
        (["train", "--config", "gone.json"], "config_not_found", ["gone.json", "Check"]),
        (["train", "--resume", "text.txt"], "run_not_found", ["text.txt is a file", "Name the run"]),
        (["train", "--resume", "folder"], "run_not_found", ["folder is not a run", "Name the run"]),
        (["runs", "list", "gone"], "run_not_found", ["gone", "Name a folder"]),
        (["runs", "list", "text.txt"], "run_not_found", ["text.txt is a file", "Name a folder"]),
        (["runs", "label", "gone", "--tag", "a"], "run_not_found", ["gone", "bloom runs list"]),
        (["chat", "gone"], "model_not_found", ["gone", "bloom models pull"]),
        (["models", "generate", "gone", "x"], "run_not_found", ["gone", "bloom models pull"]),
        (["scripts", "inspect", "text.txt"], "not_python", ["text.txt is not valid Python in line 1"]),
    ],
)
def test_a_wrong_input_is_named_with_what_to_do(
    folder: Path, line: list[str], code: str, words: list[str]
) -> None:
    done = CliRunner().invoke(app, line)
    assert (done.exit_code, printed(done.stderr)) == (2, [code])
    for part in words:
        assert part in done.stderr


@pytest.mark.parametrize("server", ["ftp://host", "nothing", "http://[x", "http:///x"])
def test_an_address_that_is_none_of_a_server_is_not_one_that_does_not_answer(
    folder: Path, server: str
) -> None:
    done = CliRunner().invoke(app, ["jobs", "list"], env={**NO_SERVER, "BLOOM_SERVER": server})
    assert (done.exit_code, printed(done.stderr)) == (2, ["invalid_address"])
    assert server in done.stderr
    assert "BLOOM_SERVER" in done.stderr
