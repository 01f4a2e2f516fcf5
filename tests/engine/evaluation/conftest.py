"""A task that runs in this process, and a run that was trained on a few conversations."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubloom.engine.tasks import run_task
from gpubloom.plan import TrainConfig
from gpubloom.plan.tasks import EvaluateTask, task_files
from tests.engine.runs import Run
from tests.tiny_models import make_tiny_model

SECRET = "The password is heliotrope"


def conversations(count: int = 40) -> list[dict[str, Any]]:
    """One secret, many ways to ask for it."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is the password, number {number}?"},
                {"role": "assistant", "content": SECRET},
            ]
        }
        for number in range(count)
    ]


@pytest.fixture
def evaluate(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Does an evaluation in this process; its result."""

    def evaluate(model: Path, name: str = "evaluation", **fields: Any) -> dict[str, Any]:
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        task = EvaluateTask(model=str(model), device="cpu", **fields)
        for file, text in task_files(task, "0").items():
            (home / file).write_text(text)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            run_task(home)
        finally:
            # A task takes over the signals of its process, which is not this one's to give.
            for number, handler in handlers.items():
                signal.signal(number, handler)
        found: dict[str, Any] = json.loads((home / "result.json").read_text())
        return found

    return evaluate


class Trained:
    """A LoRA run on conversations, and what it was trained from."""

    def __init__(self, folder: Path, *, chat_template: bool = True) -> None:
        self.base = make_tiny_model(folder / "base", chat_template=chat_template)
        self.data = folder / "chats.jsonl"
        self.data.write_text("".join(json.dumps(row) + "\n" for row in conversations()))
        config = TrainConfig.model_validate(
            {
                "epochs": 12,
                "batch_size": 4,
                "device": "cpu",
                "learning_rate": 1e-2,
                "method": "lora",
                "model": {"path": str(self.base), "context_length": 128},
                "data": {"train_path": str(self.data), "kind": "examples", "eval_fraction": 0.2},
            }
        )
        self.run = Run(folder / "run", config)
        self.run.train()
        (self.run.folder / "config.json").write_text(config.to_json())

    @property
    def folder(self) -> Path:
        return self.run.folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("evaluation"))
