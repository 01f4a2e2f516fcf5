"""The pre-flight of `bloom finetune`: its tokens are those that the run trains on."""

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpubloom.cli import preflight
from gpubloom.cli.train_config import build_config
from gpubloom.datasets import example_reader
from gpubloom.engine.data.examples import OpenedExamples, open_examples
from gpubloom.plan import CountedData, TrainConfig
from gpubloom.plan.run_files import EXAMPLES_FOLDER
from tests.tiny_models import make_tiny_model

ROWS = "".join(f'{{"prompt": "What is {n}?", "completion": "It is the number {n}."}}\n' for n in range(40))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(autouse=True)
def _nothing_counted() -> Iterator[None]:
    preflight._counted.cache_clear()
    yield
    preflight._counted.cache_clear()


@pytest.fixture
def config(model: Path, tmp_path: Path) -> TrainConfig:
    (tmp_path / "data.jsonl").write_text(ROWS, encoding="utf-8")
    (tmp_path / "more.csv").write_text("question,answer\nWho?,Seven herons.\n", encoding="utf-8")
    flags: dict[str, Any] = {
        "model.path": str(model),
        "data.kind": "examples",
        "data.train_path": "data.jsonl",
        "data.mix": [{"path": "more.csv", "weight": 2}],
        "data.chat_template": "alpaca",
    }
    return build_config(flags=flags, assignments=[], config_file=None, environment={}, folder=tmp_path)


def opened(config: TrainConfig, cache: Path | None = None) -> OpenedExamples:
    # As train.py does: from the config that was written.
    again = TrainConfig.model_validate_json(config.to_json())
    return open_examples(again.data, again.context_length, cache)


def assert_equal(found: OpenedExamples, expected: OpenedExamples) -> None:
    for side, other in ((found.train, expected.train), (found.eval, expected.eval)):
        assert side is not None
        assert other is not None
        np.testing.assert_array_equal(side.examples.tokens, other.examples.tokens)
        np.testing.assert_array_equal(side.examples.trained, other.examples.trained)
        np.testing.assert_array_equal(side.examples.starts, other.examples.starts)


def never(*_: object) -> None:
    raise AssertionError("it was tokenized again")


def test_a_run_trains_the_tokens_that_were_counted(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = opened(config)
    data = preflight.epoch_data(config)
    monkeypatch.setattr(example_reader, "render", never)
    preflight.hand_over(config, tmp_path)
    found = opened(config, tmp_path / EXAMPLES_FOLDER)
    assert found.facts == expected.facts
    assert (found.facts.rows_used, found.facts.rows_total) == (41, 41)
    assert "### Instruction" in (found.facts.template or "")
    assert_equal(found, expected)
    assert data == CountedData(len(found.train), len(found.train.tokens), config.context_length)


def test_rows_that_change_after_they_were_counted_are_read_again(config: TrainConfig, tmp_path: Path) -> None:
    preflight.epoch_data(config)
    (tmp_path / "more.csv").write_text("question,answer\nWho?,Nine herons.\n", encoding="utf-8")
    preflight.hand_over(config, tmp_path)
    found = opened(config, tmp_path / EXAMPLES_FOLDER)
    assert_equal(found, opened(config))


def test_without_room_for_temporary_files_the_run_reads_its_rows_itself(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = preflight.preflight_of(config)
    preflight._counted.cache_clear()

    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", full)
        assert preflight.preflight_of(config) == counted
        preflight.hand_over(config, tmp_path)
    assert not (tmp_path / EXAMPLES_FOLDER).exists()


def test_large_files_are_not_counted(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_COUNTED_BYTES", 100)
    monkeypatch.setattr(example_reader, "render", never)
    assert isinstance(preflight.epoch_data(config), int)
    preflight.hand_over(config, tmp_path)
    assert not (tmp_path / EXAMPLES_FOLDER).exists()
