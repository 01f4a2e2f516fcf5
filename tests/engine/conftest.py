"""What engine tests share: one thread (tiny matrices are faster so), text, and small configs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.plan import TrainConfig
from tests.engine.runs import Run

SENTENCES = "The quick brown fox jumps over the lazy dog; {} times it went, and {} times it came back.\n"


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def sample_text(lines: int = 120) -> str:
    return "".join(SENTENCES.format(number, number * 7 % 31) for number in range(lines))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(sample_text(), encoding="utf-8")
    return path


@pytest.fixture
def make_config(text_file: Path) -> Callable[..., TrainConfig]:
    """A config that trains a handful of steps in well under a second; keyword arguments override."""

    def make(**overrides: Any) -> TrainConfig:
        fields: dict[str, Any] = {
            "epochs": 1,
            "batch_size": 8,
            "device": "cpu",
            "model": {"preset": "nano", "context_length": 32},
            "data": {"train_path": str(text_file)},
        }
        return TrainConfig.model_validate(fields | overrides)

    return make


@pytest.fixture
def make_run(tmp_path: Path, make_config: Callable[..., TrainConfig]) -> Callable[..., Run]:
    def make(name: str = "run", **overrides: Any) -> Run:
        return Run(tmp_path / name, make_config(**overrides))

    return make
