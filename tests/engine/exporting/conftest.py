"""Tiny models and adapters that were not trained but changed enough to answer differently."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpubloom.engine.models.hugging_face import open_model
from gpubloom.engine.models.lora import LoraSettings, with_lora
from gpubloom.plan import TrainConfig
from tests.engine.adapters import write_adapter
from tests.tiny_models import make_tiny_model

Make = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A tiny model of a family, made once."""
    home, made = tmp_path_factory.mktemp("families"), {}

    def make(family: str = "llama") -> Path:
        if family not in made:
            made[family] = make_tiny_model(home / family, family=family, seed=3)
        return made[family]

    return make


@pytest.fixture
def adapter_of(tmp_path: Path) -> Callable[..., Path]:
    """A run directory whose model is an adapter on `base`, as if it had been trained with `method`."""

    def make(base: Path, method: str = "lora") -> Path:
        run = tmp_path / f"run-{method}"
        folder = run / "model"
        folder.mkdir(parents=True)
        model = with_lora(open_model(base), LoraSettings(4, 8.0))
        generator = torch.Generator().manual_seed(5)
        tensors = {
            model.parameter_name(block, spec): torch.randn(spec.shape, generator=generator) * 0.15
            for block in model.blocks
            for spec in block.trained
        }
        write_adapter(folder, model, tensors, str(base))
        config = TrainConfig.model_validate({"method": method, "model": {"path": str(base)}})
        (run / "config.json").write_text(config.to_json())
        return run

    return make
