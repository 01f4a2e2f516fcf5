"""The command tree: few names at the top, help for every command, and old names that still work."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.old_names import OLD_NAMES, note, with_new_name

TOP_LEVEL = [
    *("up", "ui", "train", "finetune", "plan", "chat"),
    *("runs", "models", "datasets", "scripts"),
    *("jobs", "projects", "secrets", "providers", "server", "auth"),
]
# All commands of the version before, as their users have them in scripts.
BEFORE = """
train
finetune
plan
requirements
offers
submit
providers list
providers connect
providers check
providers disconnect
providers replicate-model
data inspect
data preview
data convert
data pull
data fetch
models list
models check
models pull
watch
serve-metrics
card
compare
sample
chat
eval
export
convert
find-lr
mirror
tensorboard export
tensorboard import
config schema
up
serve
worker
openapi
db status
db upgrade
db downgrade
db moved
db copied
machines list
machines forget
login
logout
projects list
projects show
projects create
projects edit
projects delete
datasets list
datasets show
datasets upload
datasets from-documents
datasets questions
datasets stop-questions
datasets continue-questions
jobs list
jobs start
jobs show
jobs pause
jobs resume
jobs cancel
jobs logs
jobs download
""".strip().splitlines()


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


@pytest.mark.parametrize("line", BEFORE)
def test_every_old_command_line_still_works_and_notes_its_new_name(line: str) -> None:
    words = with_new_name(line.split(), quiet=True)
    assert " ".join(words) in COMMANDS
    done = CliRunner().invoke(app, [*line.split(), "--help"])
    assert done.exit_code == 0, done.output
    old = [name for name in OLD_NAMES if f"{line} ".startswith(f"{name} ")]
    assert done.stderr == (f"{note(max(old, key=len))}\n" if old else "")
    assert done.stdout == CliRunner().invoke(app, [*words, "--help"]).stdout


def test_every_old_name_was_a_command_or_a_group_of_the_version_before() -> None:
    assert not [old for old in OLD_NAMES if not any(f"{line} ".startswith(f"{old} ") for line in BEFORE)]


def test_a_note_names_the_new_command() -> None:
    assert note("watch") == (
        "note: `bloom watch` is now `bloom runs watch`; the next version removes the old name."
    )


def test_a_note_does_not_touch_standard_output(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "What?", "completion": "That."}\n')
    old = CliRunner().invoke(app, ["data", "inspect", str(file), "--json"])
    new = CliRunner().invoke(app, ["datasets", "inspect", str(file), "--json"])
    assert json.loads(old.stdout)["rows"] == 1
    assert old.stdout == new.stdout
    assert (old.stderr, new.stderr) == (f"{note('data')}\n", "")


def test_old_names_are_not_offered() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    words = set(re.findall(r"^│ (\S+)", shown, re.MULTILINE))
    assert not words & set(OLD_NAMES)


def test_an_unknown_command_is_refused() -> None:
    done = CliRunner().invoke(app, ["wach"])
    assert done.exit_code == 2
    assert "error[usage]" in done.stderr
