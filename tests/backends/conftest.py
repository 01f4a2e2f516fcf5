"""One tiny model and one file of examples for all tests of backends: making them takes a while."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.plan import TrainConfig
from tests.backends.runs import Run, write_examples
from tests.tiny_models import make_tiny_model

MakeRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOOM_RUN_DIR", "BLOOM_ATTEMPT", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a file of examples beside it."""
    folder = tmp_path_factory.mktemp("backends")
    write_examples(folder / "examples.jsonl")
    return make_tiny_model(folder / "model")


@pytest.fixture(scope="session")
def make_config(base: Path) -> Callable[..., TrainConfig]:
    """Two epochs of three steps; keyword arguments override."""

    def make(**overrides: Any) -> TrainConfig:
        fields: dict[str, Any] = {
            "backend": "trl",
            "model": {"path": str(base), "context_length": 64},
            "data": {
                "kind": "examples",
                "train_path": str(base.parent / "examples.jsonl"),
                "eval_fraction": 0.2,
            },
            "batch_size": 2,
            "accumulation": 2,
            "epochs": 2,
            "learning_rate": 2e-3,
            "device": "cpu",
        }
        return TrainConfig.model_validate(fields | overrides)

    return make


@pytest.fixture
def make_run(tmp_path: Path, make_config: Callable[..., TrainConfig]) -> MakeRun:
    def make(name: str = "run", **overrides: Any) -> Run:
        return Run(tmp_path / name, make_config(**overrides))

    return make


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory, make_config: Callable[..., TrainConfig]) -> Run:
    """An undisturbed LoRA run, with dropout: every random number counts."""
    run = Run(
        tmp_path_factory.mktemp("tuned") / "run", make_config(method="lora", lora={"rank": 4, "dropout": 0.1})
    )
    assert run.train() == "completed"
    return run
