"""A tiny model that every test of this folder may copy."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model_copy(tiny_model: Path, tmp_path: Path) -> Callable[[], Path]:
    """A copy that a test may break."""

    def copy() -> Path:
        return Path(shutil.copytree(tiny_model, tmp_path / "model"))

    return copy
