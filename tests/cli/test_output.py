"""What commands print of other people's text: no markup, no emoji names, no orders to the terminal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.output import echo, json_text
from gpubloom.cli.tables import new_console

ORDERS = "\x1b]0;title\x07\x1b[2J\x1b[31m\x9b1m\x1b]52;c;eA==\x1b\\\x1bc\x08"
ODD = f":smile:[red]odd[/red]{ORDERS}"
COMMANDED = {"\x1b", "\x9b", "\x07", "\x08", "😄"}
Answer = dict[str, Any]


def _bloom(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"}, color=True)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


def _example(tmp_path: Path) -> Path:
    file = tmp_path / "odd :smile:[red].jsonl"
    file.write_text(json.dumps({"prompt": f"question {ODD}", "completion": f"answer {ODD}"}) + "\n")
    return file


def plan(tmp_path: Path) -> str:
    folder = tmp_path / ODD.replace("/", "")
    folder.mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "text.txt").write_text("some words " * 1_000)
    output = _bloom("plan", "--set", f"model.path={folder}", "--set", "data.train_path=text.txt")
    assert ":smile:[red]odd" in output
    return output


def preview(tmp_path: Path) -> str:
    return _bloom("datasets", "preview", str(_example(tmp_path)))


def inspect(tmp_path: Path) -> str:
    return _bloom("datasets", "inspect", str(_example(tmp_path)))


def missing_run(tmp_path: Path) -> str:
    return _bloom("runs", "watch", str(tmp_path / ODD))


def usage(tmp_path: Path) -> str:
    return _bloom("runs", f"--{ODD}")


def script(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(
        f"import torch\nmodel_name = {'org/' + ODD!r}\nload_dataset({ODD!r})\nopen({ODD!r}, 'w')\n"
    )
    return _bloom("scripts", "inspect", str(file))


@pytest.mark.parametrize("command", [plan, preview, inspect, missing_run, usage, script])
def test_a_terminal_gets_no_orders_from_files_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[[Path], str]
) -> None:
    monkeypatch.chdir(tmp_path)
    output = command(tmp_path)
    assert not COMMANDED & set(output), repr(output)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("datasets show ID", {"format": None, "status": "ready", "size": 1, "problem": ODD, "report": None}),
        ("jobs logs ID", {"lines": [f"said {ODD}"], "end": 1, "start": 0, "more": False}),
    ],
)
def test_a_terminal_gets_no_orders_from_a_server(
    monkeypatch: pytest.MonkeyPatch, command: str, answer: Answer
) -> None:
    known = {"id": ODD, "name": ODD, "filename": ODD, "total": 1}
    group, *rest = command.replace("ID", "0" * 8 + "-0000-0000-0000-" + "0" * 12).split()
    monkeypatch.setattr(f"gpubloom.cli.{group}.call", lambda *_, **__: known | answer)
    output = _bloom(group, *rest)
    assert "odd" in output
    assert not COMMANDED & set(output), repr(output)


def test_json_keeps_orders_to_a_terminal_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    echo(json_text({"text": f"ы {ODD}\x7f"}))
    printed = capsys.readouterr().out
    assert "ы" in printed
    assert not COMMANDED & set(printed)
    assert json.loads(printed) == {"text": f"ы {ODD}\x7f"}


def test_a_row_with_nan_is_shown_as_json_that_every_program_reads(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "a", "completion": NaN, "id": 123456789012345678901}\n')

    def refuse(name: str) -> None:
        raise AssertionError(name)

    shown = json.loads(_bloom("datasets", "preview", str(file), "--json"), parse_constant=refuse)
    raw = shown["rows"][0]["raw"]
    assert (raw["completion"], raw["id"]) == ("NaN", 123456789012345678901)


def test_a_console_prints_brackets_and_colons_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    new_console(200).print(":smile:[red]odd[/red]")
    assert capsys.readouterr().out == ":smile:[red]odd[/red]\n"
