"""What a job of kind `script` may be asked to do."""

import pytest

from gpubloom.scripts.task import checked_path, script_task
from tests.errors import raises


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc/passwd", "path_outside_folder"),
        ("../train.py", "path_outside_folder"),
        ("a/../../b.py", "path_outside_folder"),
        (".git/config", "hidden_file"),
        ("src/.env", "hidden_file"),
        ("a\\b.py", "path_outside_folder"),
        ("", "invalid_file_name"),
        ("folder/", "invalid_file_name"),
        ("a\0b", "path_outside_folder"),
    ],
)
def test_a_path_that_leaves_the_folder_or_is_hidden_is_refused(path: str, code: str) -> None:
    with raises(ValueError, code=code):
        checked_path(path)


def test_a_path_has_one_spelling() -> None:
    assert checked_path("config//train.py") == checked_path("./config/train.py".removeprefix("./"))
    assert checked_path("daten/größe.txt") == "daten/größe.txt"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("HF_TOKEN", "secret_variable"),
        ("AWS_SECRET_ACCESS_KEY", "secret_variable"),
        ("BLOOM_SECRET", "secret_variable"),
        ("not a name", "invalid_variable"),
        ("A=B", "invalid_variable"),
    ],
)
def test_secrets_and_odd_names_are_not_taken_into_a_jobs_environment(name: str, code: str) -> None:
    with raises(ValueError, code=code):
        script_task({"environment": {name: "value"}})


def test_ordinary_values_are_kept() -> None:
    task = script_task(
        {"entry": "run.py", "arguments": ["--lr=1e-3"], "environment": {"WANDB_MODE": "offline"}}
    )
    assert (task.entry, task.arguments, task.network, task.sandboxed) == (
        "run.py",
        ("--lr=1e-3",),
        False,
        True,
    )
