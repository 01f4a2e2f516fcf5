"""`bloom datasets` for files as a person types it: a report, a page, a conversion, a download; exit codes."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app
from tests.errors import printed
from tests.tiny_models import make_tiny_model


def bloom_datasets(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["datasets", *map(str, arguments)])


def alpaca(folder: Path) -> Path:
    path = folder / "a.jsonl"
    rows = [{"instruction": f"Say {number}", "input": "", "output": f"{number}!"} for number in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "oops\n")
    return path


def test_inspect_says_what_a_file_holds_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    done = bloom_datasets("inspect", alpaca(tmp_path))
    assert done.exit_code == 0
    for words in (
        "21 rows",
        "Format: alpaca (confidence 97%)",
        "20 examples",
        "line 21 is not JSON",
        "instruction: text",
    ):
        assert words in done.stdout
    # Looking at a file leaves nothing beside it.
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_lengths_that_no_row_has_take_no_line(tmp_path: Path) -> None:
    rows = [{"prompt": "Who?", "completion": answer} for answer in ("Me.", "You.", "word " * 100_000)]
    (tmp_path / "giant.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shown = bloom_datasets("inspect", tmp_path / "giant.jsonl").stdout
    bars = [line for line in shown.splitlines() if "█" in line or line.endswith(" 0")]
    assert [line.split()[0] for line in bars] == ["6–7", "8–11", "393,216–524,287"]
    assert len({line.index("█") for line in bars}) == 1


def test_inspect_as_json_has_everything(tmp_path: Path) -> None:
    done = bloom_datasets("inspect", alpaca(tmp_path), "--json", "--eval-fraction", "0.3")
    report = json.loads(done.stdout)
    assert report["mapping"] == {
        "format": "alpaca",
        "columns": {"instruction": "instruction", "output": "output", "input": "input"},
    }
    assert report["train"] + report["eval"] == report["examples"] == 20
    assert report["problems"]["first"][0]["line"] == 21


def test_an_uncertain_format_asks_for_a_mapping_and_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("frage,antwort\nHi,Ho\n")
    unsure = bloom_datasets("inspect", path)
    assert unsure.exit_code == 1
    assert "--map prompt=frage --map completion=antwort" in unsure.stdout
    assert bloom_datasets("preview", path).exit_code == 2
    mapped = ("--map", "prompt=frage", "--map", "completion=antwort")
    assert "1 example can be used" in bloom_datasets("inspect", path, *mapped).stdout
    assert "assistant: ⟦Ho" in bloom_datasets("preview", path, *mapped).stdout
    assert bloom_datasets("inspect", path, "--map", "prompt").exit_code == 2


def test_a_file_that_is_none_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"PK\x03\x04")
    done = bloom_datasets("inspect", path)
    assert done.exit_code == 2
    assert printed(done.stderr) == ["archive_file"]


def test_a_preview_shows_the_page_and_cannot_control_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "\x1b[2J", "completion": "fine"}) + "\n")
    done = bloom_datasets("preview", path)
    assert "Row 1 (line 1)" in done.stdout
    assert "\x1b" not in done.stdout
    assert bloom_datasets("preview", path, "--page", 7).stdout == "The file has no rows after row 30.\n"


def test_convert_writes_messages_and_an_eval_split(tmp_path: Path) -> None:
    target, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    source = alpaca(tmp_path)
    done = bloom_datasets("convert", source, target, "--eval", held_out, "--eval-fraction", 0.5)
    assert done.exit_code == 0
    assert "line 21" in done.stdout
    lines = target.read_text().splitlines() + held_out.read_text().splitlines()
    assert len(lines) == 20
    assert {"role": "assistant", "content": "3!"} in [json.loads(line)["messages"][1] for line in lines]
    assert bloom_datasets("convert", source, target, "--eval", held_out).exit_code == 2
    assert bloom_datasets("convert", source, target, "--eval-fraction", 0.5).exit_code == 2


def test_convert_writes_no_json_into_a_file_that_is_read_as_a_table(tmp_path: Path) -> None:
    source = alpaca(tmp_path)
    done = bloom_datasets("convert", source, tmp_path / "new.csv")
    assert (done.exit_code, printed(done.stderr)) == (2, ["wrong_suffix"])
    assert not (tmp_path / "new.csv").exists()


def test_convert_overwrites_no_file(tmp_path: Path) -> None:
    source = alpaca(tmp_path)
    before = source.read_bytes()
    done = bloom_datasets("convert", source, source)
    assert (done.exit_code, printed(done.stderr)) == (2, ["file_exists"])
    done = bloom_datasets("convert", source, tmp_path / "new.jsonl", "--eval", source, "--eval-fraction", 0.5)
    assert (done.exit_code, printed(done.stderr)) == (2, ["file_exists"])
    assert source.read_bytes() == before
    assert not (tmp_path / "new.jsonl").exists()


def test_convert_puts_no_file_in_the_place_of_a_device_or_pipe(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    done = bloom_datasets("convert", alpaca(tmp_path), pipe)
    assert (done.exit_code, printed(done.stderr)) == (2, ["file_exists"])
    assert pipe.is_fifo()


def test_a_table_without_rows_is_said_to_have_none_and_asks_for_no_mapping(tmp_path: Path) -> None:
    head = tmp_path / "head.csv"
    head.write_text("prompt,completion\n")
    done = bloom_datasets("inspect", head)
    assert done.exit_code == 1
    assert "The file has no rows" in done.stdout
    assert "--map" not in done.stdout
    preview = bloom_datasets("preview", head)
    assert preview.exit_code == 2
    assert printed(preview.stderr) == ["no_examples"]


def test_a_folder_is_no_dataset_and_says_what_to_name_instead(tmp_path: Path) -> None:
    done = bloom_datasets("inspect", tmp_path)
    assert done.exit_code == 2
    assert printed(done.stderr) == ["not_a_file"]


def test_pull_without_a_name_lists_the_well_known_datasets() -> None:
    listed = bloom_datasets("pull")
    assert listed.exit_code == 0, listed.output
    assert "shakespeare" in listed.stdout
    names = [each["name"] for each in json.loads(bloom_datasets("pull", "--json").stdout)]
    assert all(name in listed.stdout for name in names)


@pytest.mark.parametrize(
    "arguments", [("shakespeare", "--split", "test"), ("org/data", "--accept-change")], ids=" ".join
)
def test_pull_refuses_options_of_the_other_kind_of_dataset(arguments: tuple[str, ...]) -> None:
    done = bloom_datasets("pull", *arguments)
    assert (done.exit_code, printed(done.stderr)) == (2, ["invalid_option"])


def test_the_tokenizer_of_a_run_is_that_of_its_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_tiny_model(run / "model")
    (run / "train.py").touch()
    source = alpaca(tmp_path)
    told = [bloom_datasets("inspect", source, "--tokenizer", name).stdout for name in (run, run / "model")]
    assert "tokens" in told[0]
    assert told[0] == told[1]
