"""Folders that are made once: a base, an adapter on it, and what they are asked."""

from pathlib import Path

import pytest

from gpubloom.engine.pretrained_text import ON_CPU
from gpubloom.engine.serving.found import find_model
from gpubloom.engine.serving.speech import Speech
from gpubloom.engine.serving.voices import Voices
from tests.engine.serving.speakers import make_adapter
from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("serving") / "base")


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Path:
    return make_adapter(tmp_path_factory.mktemp("serving") / "adapter", base)


@pytest.fixture(scope="session")
def voices(adapter: Path, base: Path) -> Voices:
    return Voices(find_model(adapter, base), ON_CPU)


@pytest.fixture(scope="session")
def speech(adapter: Path, base: Path) -> Speech:
    return Speech.of(find_model(adapter, base))
