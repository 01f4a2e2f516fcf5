"""Defaults that the command line tells or types are those of the config and of the tasks."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubloom.cli.evaluate import evaluate
from gpubloom.cli.export import export
from gpubloom.cli.find_lr import find_lr
from gpubloom.cli.finetune import finetune
from gpubloom.cli.train import train
from gpubloom.plan import TrainConfig
from gpubloom.plan.tasks import EvaluateTask, ExportTask, FindLearningRateTask

CONDITIONAL = ("learning_rate", "epochs", "batch_size")
DOCS = Path(__file__).parents[2] / "docs"


def _defaults(name: str) -> dict[str, float]:
    found: dict[str, float] = TrainConfig.model_json_schema()["properties"][name]["defaults"]
    return found


def _numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:e-\d+)?", text)}


def _told(command: Callable[..., None], name: str) -> set[float]:
    option = inspect.signature(command).parameters[name].annotation.__metadata__[0]
    return _numbers(option.help.partition("[default:")[2])


@pytest.mark.parametrize("name", CONDITIONAL)
def test_help_and_page_of_train_tell_the_defaults_of_the_config(name: str) -> None:
    assert _told(train, name) == set(_defaults(name).values())
    row = next(line for line in (DOCS / "training.md").read_text().splitlines() if f"| `{name}` |" in line)
    assert _numbers(row) == set(_defaults(name).values())


@pytest.mark.parametrize("name", CONDITIONAL)
def test_help_of_finetune_tells_the_defaults_of_pretrained_weights(name: str) -> None:
    assert _told(finetune, name) == {
        value for situation, value in _defaults(name).items() if situation != "new_model"
    }


@pytest.mark.parametrize(
    ("command", "task", "names"),
    [
        (find_lr, FindLearningRateTask, ("lowest", "highest", "steps")),
        (evaluate, EvaluateTask, ("max_new_tokens", "max_batches")),
        (export, ExportTask, ("form", "dtype")),
    ],
)
def test_options_of_a_task_have_its_defaults(
    command: Callable[..., None], task: Any, names: tuple[str, ...]
) -> None:
    parameters = inspect.signature(command).parameters
    for name in names:
        assert parameters[name].default == task.model_fields[name].default


def test_page_of_fine_tuning_tells_the_defaults_of_the_config() -> None:
    config = TrainConfig().model_dump()
    page = (DOCS / "fine-tuning.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+\.)?([a-z_]+)` \| (`[^`]+`|[\d.]+) \|", page, flags=re.MULTILINE)
    assert len(rows) >= 6
    for part, name, told in rows:
        default = (config[part.rstrip(".")] if part else config)[name]
        assert told.strip("`") == (str(default).lower() if isinstance(default, bool) else str(default))
