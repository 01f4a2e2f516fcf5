"""What a job of kind `script` may be asked to do."""

import pytest

from gpubloom.scripts.task import checked_path, script_task


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../train.py",
        "a/../../b.py",
        ".git/config",
        "src/.env",
        "a\\b.py",
        "",
        "folder/",
        "a\0b",
    ],
)
def test_a_path_that_leaves_the_folder_or_is_hidden_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"inside|hidden|name"):
        checked_path(path)


def test_a_path_has_one_spelling() -> None:
    assert checked_path("config//train.py") == checked_path("./config/train.py".removeprefix("./"))
    assert checked_path("daten/größe.txt") == "daten/größe.txt"


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "BLOOM_SECRET", "not a name", "A=B"])
def test_secrets_and_odd_names_are_not_taken_into_a_jobs_environment(name: str) -> None:
    with pytest.raises(ValueError, match="environment"):
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
