"""`--help` of every command says all that was written, also what stands in brackets; so does the console."""

import builtins
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from gpubloom.cli import app as gathered
from gpubloom.cli import main
from gpubloom.cli.plan import plan_lines
from gpubloom.plan import Hardware, TrainConfig, plan
from gpubloom.traincard import Reporter
from tests.errors import printed

CLI = Path(gathered.__file__).parent


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*words, name))


COMMANDS = dict(_commands(typer.main.get_command(gathered.app)))


def _help(words: tuple[str, ...]) -> str:
    from typer import rich_utils

    command, shown = COMMANDS[words], StringIO()
    with pytest.MonkeyPatch.context() as patch:
        wide = Console(file=shown, width=400, force_terminal=False)
        patch.setattr(rich_utils, "_get_rich_console", lambda stderr=False: wide)
        with command.make_context("bloom", [], resilient_parsing=True) as context:
            command.format_help(context, context.make_formatter())
    return shown.getvalue()


def _written(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\\[", "["))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "bloom")
def test_help_shows_every_text_as_it_was_written(words: tuple[str, ...]) -> None:
    shown = re.sub(r"[│╭╮╰╯─\s]+", " ", _help(words))
    command = COMMANDS[words]
    texts = [command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)]
    for text in texts:
        for part in _written(text).split("\n\n"):
            assert part.strip() in shown
    assert "\\[" not in shown


def test_the_installed_command_says_defaults_and_variables_of_train() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", "train", "--help"],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    for said in ("[env EPOCHS]", "[env TRAIN_DATA_PATH]", "[env LEARNING_RATE]", "[default: 10, or 3"):
        assert said in done.stdout, done.stdout


def test_every_command_prints_with_the_functions_that_remove_orders_to_the_terminal() -> None:
    own = re.compile(r"\bConsole\(|\btyper\.s?echo\(|(?<![\w.])print\(")
    for path in CLI.glob("*.py"):
        if path.name not in {"output.py", "tables.py"}:
            assert own.findall(path.read_text(encoding="utf-8")) == [], path.name


def test_a_plan_shows_brackets_in_names(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(TrainConfig(), Hardware(name="box", host_memory_bytes=16 * 10**9, cpu_cores=4))
    console = Console(highlight=False, width=300)
    for line in plan_lines(found, "models/[v2]/tiny on box [old]"):
        console.print(line, soft_wrap=True)
    assert "models/[v2]/tiny on box [old]" in capsys.readouterr().out


def test_help_is_fast_because_nothing_heavy_is_imported() -> None:
    code = """
import sys
import gpubloom.cli.app
heavy = {
    "fastapi", "gpubloom.plan", "gpubloom.server", "gpubloom.traincard", "httpx2", "numpy", "pydantic",
    "rich.live", "rich.progress", "rich.table", "sqlalchemy", "torch",
} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_arguments_are_in_capitals_flags_have_no_type_and_paragraphs_wrap_by_themselves() -> None:
    shown = _help(("finetune",))
    assert "{MODEL} {DATA}" in shown
    assert "--preflight" in shown
    assert "<bool>" not in shown
    assert "<bool>" not in _help(())
    assert "checkpointing, in turns. The result is the median" in _help(("models", "bench"))


def test_a_refused_value_is_said_without_the_words_of_the_validator() -> None:
    done = CliRunner().invoke(gathered.app, ["models", "export", "model", "--to", "new", "--form", "zip"])
    assert "'zip' is not one of" in done.stderr
    assert "Value error" not in done.stderr
    for words in (
        ["train", "--epochs", "two"],
        ["train", "--learning-rate", "x"],
        ["train", "--set", "epochs=x"],
    ):
        done = CliRunner().invoke(gathered.app, words)
        assert done.exit_code == 2
        assert "Input should" not in done.stderr
        assert "input should" not in done.stderr


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("--epochs", "epochs", "two"),
        ("--learning-rate", "learning_rate", "x"),
        ("--max-steps", "max_steps", "1.5"),
    ],
)
def test_a_refused_value_is_said_in_the_same_words_for_options_and_fields(
    option: str, field: str, value: str
) -> None:
    by_option = CliRunner().invoke(gathered.app, ["train", option, value]).stderr
    by_field = CliRunner().invoke(gathered.app, ["train", "--set", f"{field}={value}"]).stderr
    words = f"'{value}' {by_field.partition(value)[2].lstrip(chr(39)).strip().rstrip('.')}"
    assert words.startswith(f"'{value}' is not a")
    assert words in by_option


def test_a_value_beyond_a_limit_is_named_with_the_limit() -> None:
    done = CliRunner().invoke(gathered.app, ["runs", "list", "--limit", "0"])
    assert (done.exit_code, printed(done.stderr)) == (2, ["usage"])
    assert "'0' is below the minimum of 1" in done.stderr


def test_a_name_in_place_of_an_id_is_refused_with_the_command_that_lists_ids() -> None:
    done = CliRunner().invoke(gathered.app, ["jobs", "show", "my-job"])
    assert (done.exit_code, printed(done.stderr)) == (2, ["usage"])
    assert "not an id. Job id from `bloom jobs list`." in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        ("chat LONG", "unreadable_file", 1),
        ("train LONG", "unreadable_file", 1),
        ("runs watch LONG", "unreadable_file", 1),
        ("models generate . BYTES", "not_utf8", 2),
        ("runs label RUN --tag BYTES", "not_utf8", 2),
        ("train TEXT --run-dir BYTES", "not_utf8", 2),
        ("runs label RUN --tag=", "invalid_option", 2),
        ("plan --set batch_size=DEEP", "invalid_option", 2),
    ],
)
def test_odd_words_are_an_error_without_a_traceback(
    tmp_path: Path, words: str, code: str, status: int
) -> None:
    Reporter(run := tmp_path / "run", announce=False).close()
    odd = {"LONG": b"a long text " * 100, "BYTES": b"\xff", "DEEP": b"[" * 20_000, "RUN": bytes(run)}
    odd["TEXT"] = __file__.encode()
    given = [words.encode() for words in words.split(" ")]
    for name, text in odd.items():
        given = [word.replace(name.encode(), text) for word in given]
    done = subprocess.run(
        [sys.executable, "-m", "gpubloom.cli", *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, printed(done.stderr)) == (status, [code])
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 500


@pytest.mark.parametrize("words", ["--version", "models list", "runs config-schema"])
@pytest.mark.parametrize("buffering", ["", "1"])
def test_an_output_that_is_full_is_an_error_without_a_traceback(words: str, buffering: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpubloom.cli", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": buffering},
            check=False,
        )
    assert (done.returncode, printed(done.stderr)) == (1, ["disk_full"])
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_is_not_utf_8_gets_bars_and_signs_in_its_own_characters(encoding: str) -> None:
    bloom = [sys.executable, "-c", "from gpubloom.cli import main; main()"]
    done = subprocess.run(
        [*bloom, "plan", "--shape", "7b", "--machine", "H200, 1536 GB host"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tokens/s" in done.stdout
    assert b"# weights" in done.stdout
    assert b"?" not in done.stdout


def test_ctrl_c_while_the_modules_load_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    import_as_before = builtins.__import__

    def interrupted(name: str, *more: Any, **named: Any) -> Any:
        if name == "gpubloom.cli.app":
            raise KeyboardInterrupt
        return import_as_before(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
