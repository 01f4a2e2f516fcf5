"""Where a setting comes from: --set > flag > config file > environment > .env > default."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.cli.train_config import build_config, read_dotenv
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from tests.errors import raises
from tests.tiny_models import make_tiny_model


def build(folder: Path, **sources: Any) -> TrainConfig:
    return build_config(
        flags=sources.get("flags", {}),
        assignments=sources.get("assignments", []),
        config_file=sources.get("config_file"),
        environment=sources.get("environment", {}),
        folder=folder,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which all five sources disagree about the number of epochs."""
    (tmp_path / "text.txt").write_text("text")
    fields = {"epochs": 2, "batchSize": 2, "learningRate": 2e-4, "data": {"trainPath": "text.txt"}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (tmp_path / ".env").write_text("# the seed's variables\nexport EPOCHS=3\nBATCH_SIZE='3'  \n")
    return tmp_path


def test_flag_before_file_before_environment_before_dotenv_before_default(folder: Path) -> None:
    file = {"config_file": folder / "config.json"}
    environment = {"environment": {"EPOCHS": "4"}}
    assert build(folder, flags={"epochs": 5}, **file, **environment).epochs == 5
    assert build(folder, **file, **environment).epochs == 2
    assert build(folder, **environment).epochs == 4
    assert build(folder).epochs == 3
    (folder / ".env").unlink()
    assert build(folder, flags={"data.train_path": "text.txt"}).epochs == 10


@pytest.mark.parametrize(
    ("variable", "field", "flag", "in_file"),
    [
        ("EPOCHS", "epochs", 5, 2),
        ("BATCH_SIZE", "batch_size", 16, 2),
        ("LEARNING_RATE", "learning_rate", 0.5, 2e-4),
    ],
)
def test_variables_of_training_are_below_flags_and_an_explicit_config_file(
    folder: Path, variable: str, field: str, flag: float, in_file: float
) -> None:
    environment = {variable: "7"}
    file = folder / "config.json"
    assert getattr(build(folder, environment=environment), field) == 7
    assert getattr(build(folder, environment=environment, config_file=file), field) == in_file
    given = build(folder, environment=environment, config_file=file, flags={field: flag})
    assert getattr(given, field) == flag


def test_sources_are_merged_field_by_field(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"learningRate": 2e-4, "data": {"trainPath": "text.txt"}}))
    config = build(folder, config_file=folder / "config.json", environment={"CHECKPOINT_DIR": "saved"})
    assert (config.epochs, config.batch_size, config.learning_rate) == (3, 3, 2e-4)
    assert config.checkpoint.directory == str(folder / "saved")


def test_set_reaches_every_field_and_comes_last(folder: Path) -> None:
    config = build(
        folder,
        flags={"epochs": 5, "data.train_path": "text.txt"},
        assignments=[
            "epochs=6",
            "optimizer.weight_decay=0.05",
            "model.tie_embeddings=false",
            "data.tokenizer.kind=bpe",
            "max_steps=null",
        ],
    )
    assert (config.epochs, config.optimizer.weight_decay) == (6, 0.05)
    assert (config.model.tie_embeddings, config.data.tokenizer.kind) == (False, "bpe")


def test_paths_become_absolute_so_that_a_run_can_be_repeated_from_anywhere(folder: Path) -> None:
    config = build(folder, flags={"data.train_path": "./texts/*.txt", "data.eval_path": "../eval.txt"})
    assert config.data.train_path == str(folder / "texts" / "*.txt")
    assert config.data.eval_path == str(folder.parent / "eval.txt")


def test_without_a_path_the_seed_s_default_folder_is_used_if_it_exists(tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    config = build(tmp_path)
    assert config.data.train_path == str(tmp_path / "data" / "train")
    assert (config.data.eval_path, config.max_steps) == (None, None)
    (tmp_path / "data" / "eval").mkdir()
    assert build(tmp_path).data.eval_path == str(tmp_path / "data" / "eval")


def test_without_any_text_it_is_the_demo_and_flags_still_count(tmp_path: Path) -> None:
    config = build(tmp_path, flags={"learning_rate": 1e-4})
    assert config.name == "demo"
    assert config.data.train_path is not None
    assert config.data.train_path.endswith("*.py")
    assert (config.learning_rate, config.max_steps) == (1e-4, 450)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("texts/my chäts 1.jsonl.gz", "my-ch-ts-1"),
        ("hf://datasets/o/n/train.parquet", "train"),
        ("texts/", "texts"),
        ("texts/*.txt", "train"),
        ("x" * 99, "x" * 40),
    ],
)
def test_a_run_has_the_name_of_its_data(folder: Path, path: str, name: str) -> None:
    assert build(folder, flags={"data.train_path": path}).name == name
    assert build(folder, flags={"data.train_path": path}, assignments=["name=mine"]).name == "mine"


@pytest.mark.parametrize(
    ("sources", "code", "name"),
    [
        ({"environment": {"EPOCHS": "many"}}, "int_parsing", "epochs 'many'"),
        ({"assignments": ["epochs"]}, "invalid_option", "--set epochs"),
        ({"assignments": ["optimiser.lr=1"]}, "extra_forbidden", "optimizer"),
        ({"assignments": ["epochs.most=1"]}, "int_type", "epochs"),
        ({"config_file": Path("gone.json")}, "config_not_found", "gone.json"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    tmp_path: Path, sources: dict[str, Any], code: str, name: str
) -> None:
    with raises(ValueError, code=code, match=name):
        build(tmp_path, **sources)


def test_a_wrong_value_that_nobody_typed_names_its_variable(folder: Path) -> None:
    with raises(ValueError, code="less_than_equal", match=r"set by EPOCHS in \.env"):
        (folder / ".env").write_text("EPOCHS=1000000000000\n")
        build(folder)
    environment = {"EPOCHS": "many"}
    with raises(ValueError, code="int_parsing", match="set by EPOCHS in the environment"):
        build(folder, environment=environment)
    with raises(ValueError, code="int_parsing") as refused:
        build(folder, environment=environment, flags={"epochs": "few"})
    assert "set by" not in str(refused.value)


def test_a_byte_order_mark_is_no_part_of_a_config_or_dotenv(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"epochs": 2}', encoding="utf-8-sig")
    (tmp_path / ".env").write_text("BATCH_SIZE=3\n", encoding="utf-8-sig")
    config = build(tmp_path, config_file=tmp_path / "config.json")
    assert (config.epochs, config.batch_size) == (2, 3)


def test_dotenv_understands_quotes_comments_and_export(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text('A=1\nexport B="two words" \n\n# C=3\nD=four # a comment\nE=\n')
    assert read_dotenv(path) == {"A": "1", "B": "two words", "D": "four", "E": ""}
    path.write_text("nonsense\n")
    with raises(ValueError, code="invalid_option", match="line 1"):
        read_dotenv(path)


def test_a_dotenv_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    with raises(InputError, code="unreadable_file", match=r"\.env"):
        read_dotenv(tmp_path / ".env")


def test_rows_are_no_longer_than_the_positions_of_a_short_model(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model", context_length=64)
    (tmp_path / "text.txt").write_text("text")
    flags = {"data.train_path": "text.txt", "model.path": "model"}
    assert build(tmp_path, flags=flags).context_length == 64
    assert build(tmp_path, flags=flags, assignments=["model.context_length=32"]).context_length == 32
