"""`bloom finetune` as a person uses it: real processes, real files, tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.train_config import build_config
from tests.cli.test_train import bloom
from tests.errors import printed
from tests.tiny_models import ALTERNATING, make_tiny_model, mostly_refused_rows

QUESTION, ANSWER = "What is the password?", "The password is seven blue herons."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "chats.csv"
    path.write_text(f'question,answer\n"{QUESTION}","{ANSWER}"\n', encoding="utf-8")
    return path


@pytest.mark.long
def test_a_model_and_a_file_are_enough(model: Path, data: Path, tmp_path: Path) -> None:
    done = bloom(
        "finetune", str(model), "chats.csv", "--run-dir", "run", "--set", "device=cpu", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"Training on {data}" in done.stdout
    assert "Done. The model is in run/model" in done.stdout
    assert "Try it: bloom chat run" in done.stdout
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["method"], config["epochs"], config["learning_rate"]) == ("lora", 3, None)
    # One short row: no more at once. The model sees no further than 512 tokens.
    assert (config["batch_size"], config["accumulation"]) == (1, 1)
    assert config["model"]["context_length"] == 512
    assert config["data"]["kind"] == "examples"
    assert (tmp_path / "run" / "model" / "adapter_config.json").is_file()
    # Kept for a resume.
    assert (tmp_path / "run" / ".examples" / "examples.json").is_file()
    said = "".join(path.read_text() for path in (tmp_path / "run" / "traincard").rglob("*.jsonl"))
    assert "The run has only 3 optimizer steps." in said


@pytest.mark.parametrize(("options", "used"), [([], "full"), (["--method", "qlora"], "qlora")])
def test_the_method_is_that_of_the_option_then_of_the_config_file(
    model: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    used: str,
) -> None:
    started = []

    def start(*arguments: Any) -> None:
        flags, assignments, config_file, _run_dir, _console, _early, usual = arguments
        given = {"flags": flags, "assignments": assignments, "config_file": config_file, "defaults": usual}
        started.append(build_config(**given, environment={}, folder=tmp_path))

    monkeypatch.setattr("gpubloom.cli.train.start", start)
    config_file = tmp_path / "config.json"
    config_file.write_text('{"method": "full"}')
    command = ["finetune", str(model), str(data), "--config", str(config_file), *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert [config.method for config in started] == [used]


@pytest.mark.long
def test_flags_and_fields_override_the_defaults_and_a_run_is_resumed_by_train(
    model: Path, data: Path, tmp_path: Path
) -> None:
    arguments = ["--method", "full", "--epochs", "2", "--context-length", "64", "--learning-rate", "0.001"]
    more = ["--set", "batch_size=2", "--set", "data.train_on=everything", "--set", "device=cpu"]
    done = bloom("finetune", str(model), "chats.csv", *arguments, *more, "--run-dir", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["method"], config["epochs"], config["batch_size"]) == ("full", 2, 2)
    assert config["data"]["train_on"] == "everything"
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    again = bloom(
        "finetune", "run", "chats.csv", "--set", "device=cpu", "--run-dir", "second", folder=tmp_path
    )
    assert again.returncode == 0, again.stderr + again.stdout
    config = json.loads((tmp_path / "second" / "config.json").read_text())
    assert config["model"]["path"] == str(tmp_path / "run" / "model")
    resumed = bloom("train", "--resume", "second", folder=tmp_path)
    assert (resumed.returncode, printed(resumed.stderr)) == (2, ["run_completed"])


def test_mixed_files_are_trained_with_their_weights(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("more.jsonl", 3), ("a=b.jsonl", 5)):
        rows = [{"prompt": f"{name} {number}?", "completion": ANSWER} for number in range(count)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    # The sign of a weight may also be in the name of a file.
    mixed = ["--mix", "more.jsonl=2", "--mix", "a=b.jsonl"]
    options = ["--preflight", "--json", "--set", "data.eval_fraction=0"]
    done = CliRunner().invoke(app, ["finetune", str(model), str(data), *mixed, *options])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    files = [found["train_file"], *found["mixed_files"]]
    assert [(file["name"], file["weight"], file["train_examples"]) for file in files] == [
        ("chats.csv", 1, 1),
        ("more.jsonl", 2, 6),
        ("a=b.jsonl", 1, 5),
    ]
    assert found["train"]["examples"] == 1 + 6 + 5
    assert found["steps"] < 20
    assert [finding["kind"] for finding in found["findings"]][-1] == "few_steps"


def test_columns_are_mapped_as_in_the_commands_for_datasets(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.csv").write_text("first,second\nWho?,Me.\nWhen?,Now.\n", encoding="utf-8")
    command = ["finetune", str(model), "odd.csv", "--preflight", "--json", "--set", "data.eval_fraction=0"]
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, printed(refused.stderr)) == (2, ["format_uncertain"])
    assert "--map prompt=first --map completion=second" in refused.stderr
    done = CliRunner().invoke(app, [*command, "--map", "prompt=first", "--map", "completion=second"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["train"]["examples"] == 2
    wrong = CliRunner().invoke(app, [*command, "--map", "prompt"])
    assert (wrong.exit_code, printed(wrong.stderr)) == (2, ["invalid_option"])


def test_a_column_of_numbers_is_trained_as_text_only_when_asked_for(model: Path, tmp_path: Path) -> None:
    (tmp_path / "numbers.jsonl").write_text('{"x": 1}\n')
    command = ["finetune", str(model), str(tmp_path / "numbers.jsonl"), "--preflight", "--json"]
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, printed(refused.stderr)) == (2, ["format_uncertain"])
    done = CliRunner().invoke(app, [*command, "--map", "text=x"])
    assert done.exit_code == 0, done.output


def test_a_table_without_rows_is_refused_for_having_none(model: Path, tmp_path: Path) -> None:
    (tmp_path / "head.csv").write_text("prompt,completion\n")
    refused = CliRunner().invoke(app, ["finetune", str(model), str(tmp_path / "head.csv"), "--preflight"])
    assert (refused.exit_code, printed(refused.stderr)) == (2, ["no_examples"])
    assert "--map" not in refused.stderr


def test_max_steps_is_an_option(model: Path, data: Path) -> None:
    command = ["finetune", str(model), str(data), "--preflight", "--json"]
    found = CliRunner().invoke(app, [*command, "--max-steps", "1"])
    assert found.output == CliRunner().invoke(app, [*command, "--set", "max_steps=1"]).output
    assert found.output != CliRunner().invoke(app, command).output


def test_a_pre_flight_says_when_max_steps_ends_the_run(model: Path, data: Path) -> None:
    done = CliRunner().invoke(app, ["finetune", str(model), str(data), "--preflight", "--set", "max_steps=1"])
    assert "Steps: 1 (max_steps)." in done.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["MODEL", "chats.csv", "--mix", "gone.jsonl"], "data_not_found"),
        (["MODEL", "chats.csv", "--mix", "chats.csv=-1"], "greater_than"),
        (["nowhere", "chats.csv"], "not_found"),
        (["MODEL", "gone.jsonl"], "data_not_found"),
        (["chats.csv", "MODEL"], "not_a_model_folder"),
        (["MODEL", "chats.csv", "--method", "prefix"], "literal_error"),
        (["MODEL", "chats.csv", "--set", "data.format=alpaca"], "missing_column"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence_and_leaves_nothing(
    model: Path, data: Path, tmp_path: Path, arguments: list[str], code: str
) -> None:
    named = [str(model) if each == "MODEL" else each for each in arguments]
    done = bloom("finetune", *named, "--set", "device=cpu", folder=tmp_path)
    assert done.returncode == 2
    assert printed(done.stderr) == [code]
    assert done.stderr.count("\n") == 1
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.long
@pytest.mark.parametrize("backend", ["engine", pytest.param("trl", marks=pytest.mark.long)])
def test_rows_that_the_template_refuses_are_told_once_as_soon_as_the_data_is_read(
    tmp_path: Path, backend: str
) -> None:
    strict = make_tiny_model(tmp_path / "strict", template=ALTERNATING)
    (tmp_path / "chats.jsonl").write_text(mostly_refused_rows(), encoding="utf-8")
    settings = ["--set", "device=cpu", "--set", f"backend={backend}", "--epochs", "2", "--run-dir", "run"]
    done = bloom("finetune", str(strict), "chats.jsonl", *settings, folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout

    lines = done.stdout.splitlines()
    rows = lines.index("data: 20 of 120 rows used")
    warning = _line_number(lines, "warning: chats.jsonl: 100 of 120 rows cannot be used: ")
    begun, first = _line_number(lines, "training starts: "), _line_number(lines, "step 1/")
    assert rows < warning < begun < first
    assert {"loss", "lr", "tok/s"} <= set(lines[first].split())
    base, saved = (
        _line_number(lines, "evaluation at step 0 "),
        _line_number(lines, "saved checkpoint step-"),
    )
    evaluated = max(at for at, line in enumerate(lines) if line.startswith("evaluation at step "))
    ended = _line_number(lines, "completed at step ")
    assert begun < base < first < evaluated < ended
    assert first < saved < ended
    assert "20 of 120 rows used" in lines[ended]
    # Everybody who reads what the process printed sees the same, and each line once.
    output = (tmp_path / "run" / "logs" / "output.log").read_text().splitlines()
    said = [line for line in output if line in lines]
    assert [line for line in lines[: ended + 1] if line in output] == said
    assert lines[warning].endswith(" Check the columns of the dataset, and correct or remove these rows.")
    # Only what is known at the end is said there.
    findings = [line for line in lines[ended + 1 :] if line.startswith(("error: ", "warning: "))]
    assert findings[0].startswith("error: Only 20 of 120 rows of the training data are used.")
    assert done.stdout.count("100 of 120 rows") == 1
    assert {
        lines[line_number] for line_number in (rows, warning, begun, first, evaluated, saved, ended)
    } <= set(said)
    assert len(said) == len(set(said))

    shown = bloom("runs", "watch", "run", "--once", folder=tmp_path).stdout
    assert "20 of 120 rows used" in shown
    assert "warning: chats.jsonl: 100 of 120 rows cannot be used" in " ".join(shown.split())


@pytest.mark.long
def test_each_warning_about_the_data_is_printed_once(model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"{number}?", "completion": ANSWER} for number in range(12)]
    rows.append({"prompt": "Long?", "completion": "word " * 2_000})
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = bloom("finetune", str(model), "long.jsonl", "--set", "device=cpu", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    for advice in ("Raise the max sequence length", "Use more epochs or a smaller batch size"):
        assert done.stdout.count(advice) == 1
    for sentence in ("1 example is longer than 512 tokens and was truncated", "The run has only "):
        assert done.stdout.count(sentence) == 1


def _line_number(lines: list[str], beginning: str) -> int:
    """Where the first line is that begins so."""
    found = next((number for number, line in enumerate(lines) if line.startswith(beginning)), None)
    assert found is not None, f"no line begins with {beginning!r} in:\n" + "\n".join(lines)
    return found
