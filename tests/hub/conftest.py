"""A tiny model that every test of this folder may copy, and a hub on the loopback address."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hub.fake_hub import FakeHub, running_hub
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


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that this process, and those it starts, take for the real one; no token is known to them."""
    import huggingface_hub.constants

    with running_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        # What the library read when it was imported.
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
        yield running
