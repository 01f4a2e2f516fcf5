"""The command tree: few names at the top, and help for every command."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpubloom.cli.app import app

TOP_LEVEL = [
    *("up", "ui", "train", "finetune", "plan", "chat"),
    *("runs", "models", "datasets", "scripts"),
    *("jobs", "projects", "secrets", "providers", "server", "auth"),
]


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if words:
        yield " ".join(words), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*words, name))


ROOT = typer.main.get_command(app)
COMMANDS = dict(_commands(ROOT))


def test_the_top_level_has_sixteen_names_in_this_order() -> None:
    assert list(ROOT.commands) == TOP_LEVEL  # type: ignore[attr-defined]
    assert len(TOP_LEVEL) <= 16


def test_bloom_help_says_every_name_in_one_line_of_80_columns() -> None:
    _, _, shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.partition("Get started")
    rows = [line.strip("│ ") for line in shown.splitlines() if line.startswith("│")]
    assert [row.split()[0] for row in rows] == TOP_LEVEL, shown
    assert all(row.endswith(".") for row in rows), shown


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_has_help_that_starts_with_one_sentence(line: str) -> None:
    command = COMMANDS[line]
    first = (command.help or "").partition("\n\n")[0]
    assert first.endswith("."), f"bloom {line}: {first!r}"
    for parameter in command.params:
        if not getattr(parameter, "hidden", False) and parameter.name != "help":
            assert parameter.help, f"bloom {line}: {parameter.name} has no help"


def test_an_unknown_command_is_refused() -> None:
    done = CliRunner().invoke(app, ["wach"])
    assert done.exit_code == 2
    assert "error[usage]" in done.stderr
