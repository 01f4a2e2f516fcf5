from pathlib import Path

import pytest

from tests.engine.conftest import sample_text
from tests.engine.parallel.rig import SAVED_OFTEN, train, write_examples, write_text_run
from tests.engine.runs import read_losses
from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_examples(tmp_path_factory.mktemp("data") / "chats.jsonl")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text(sample_text(400), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, text: Path) -> dict[int, float]:
    """The losses of two processes that nobody disturbed."""
    run = write_text_run(tmp_path_factory.mktemp("undisturbed") / "run", text, **SAVED_OFTEN)
    train(run)
    return read_losses(run)
