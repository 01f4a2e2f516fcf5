"""Folders that are made once: a base, an adapter on it, and what they are asked."""

from pathlib import Path

import pytest

from gpubloom.engine.pretrained_text import ON_CPU
from gpubloom.engine.serving.model_registry import ModelRegistry
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import find_model
from tests.engine.serving.speakers import make_adapter
from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("serving") / "base")


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Path:
    return make_adapter(tmp_path_factory.mktemp("serving") / "adapter", base)


@pytest.fixture(scope="session")
def registry(adapter: Path, base: Path) -> ModelRegistry:
    return ModelRegistry(find_model(adapter, base), ON_CPU)


@pytest.fixture(scope="session")
def formatter(adapter: Path, base: Path) -> PromptFormatter:
    return PromptFormatter.of(find_model(adapter, base))
