"""Several files are trained together, each as often as its weight says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpubloom.datasets import ModelFiles, Preflight, ReadingOptions, example_files, preflight
from gpubloom.engine import Dataset
from gpubloom.engine.data.packing import PackedRows
from gpubloom.plan import TrainConfig, estimate_tokens
from tests.datasets.files import write_jsonl
from tests.errors import raises
from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def config_of(model: Path, train: Path, mix: list[dict[str, Any]], **data: Any) -> TrainConfig:
    fields = {"kind": "examples", "train_path": str(train), "mix": mix, **data}
    return TrainConfig.model_validate({"model": {"path": str(model), "context_length": 64}, "data": fields})


def count(config: TrainConfig) -> Preflight:
    assert config.data.tokenizer.path is not None
    options = ReadingOptions.of(config.data, config.context_length)
    return preflight(*example_files(config.data), options, ModelFiles.load(Path(config.data.tokenizer.path)))


def pairs(word: str, count: int) -> list[dict[str, str]]:
    return [{"prompt": f"{word} {number}?", "completion": f"It is {word}."} for number in range(count)]


def test_each_file_is_trained_as_often_as_its_weight_says_and_counted_so(model: Path, tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "first.jsonl", pairs("red", 100))
    often = write_jsonl(
        tmp_path / "often.jsonl",
        [{"frage": row["prompt"], "antwort": row["completion"]} for row in pairs("blue", 20)],
    )
    rarely = write_jsonl(tmp_path / "rarely.jsonl", pairs("green", 200))
    mix = [
        {"path": str(often), "weight": 3, "columns": {"prompt": "frage", "completion": "antwort"}},
        {"path": str(rarely), "weight": 0.25},
    ]
    config = config_of(model, first, mix, eval_fraction=0)
    found = count(config)
    blue, green = found.mixed_files
    assert (found.train_file.train_examples, blue.train_examples) == (100, 60)
    assert 30 <= green.train_examples <= 70
    assert found.train.examples == 160 + green.train_examples
    assert (blue.rows, green.rows, blue.weight, green.weight) == (20, 200, 3, 0.25)
    # A weight is wanted; only rows that repeat others are duplicates.
    assert found.duplicates == 0
    run = Dataset.open(config.data, config.context_length)
    assert isinstance(run.train, PackedRows)
    assert (len(run.train.examples), len(run.train)) == (found.train.examples, found.train.sequences)
    assert len(run.train.examples.tokens) == found.train.tokens
    assert (run.rows_used, run.rows_total) == (320, 320)


def test_held_out_examples_come_from_all_files_and_are_never_trained(model: Path, tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "first.jsonl", pairs("red", 40))
    same = write_jsonl(tmp_path / "same.jsonl", [*pairs("red", 40), *pairs("blue", 40)])
    config = config_of(model, first, [{"path": str(same), "weight": 2}], eval_fraction=0.25)
    found = count(config)
    assert found.eval is not None
    assert found.overlap == 0
    run = Dataset.open(config.data, config.context_length)
    assert isinstance(run.train, PackedRows)
    assert isinstance(run.eval, PackedRows)
    sides = [
        {tuple(part) for part in np.split(np.asarray(side.examples.tokens), side.examples.starts[1:-1])}
        for side in (run.train, run.eval)
    ]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 80


def test_what_was_kept_is_made_again_when_a_weight_changes(model: Path, tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "first.jsonl", pairs("red", 10))
    more = write_jsonl(tmp_path / "more.jsonl", pairs("blue", 10))
    counts = []
    for weight in (1, 4, 4):
        config = config_of(model, first, [{"path": str(more), "weight": weight}], eval_fraction=0)
        run = Dataset.open(config.data, 64, tmp_path / "cache")
        assert isinstance(run.train, PackedRows)
        counts.append(len(run.train.examples))
    assert counts == [20, 50, 50]


def test_a_weight_that_leaves_nothing_of_a_file_is_refused(model: Path, tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "first.jsonl", pairs("red", 10))
    more = write_jsonl(tmp_path / "more.jsonl", pairs("blue", 3))
    with raises(ValueError, code="weight_too_small"):
        count(config_of(model, first, [{"path": str(more), "weight": 1e-9}]))


def test_an_estimate_by_sizes_counts_every_file_by_its_weight(model: Path, tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "first.jsonl", pairs("red", 10))
    alone = estimate_tokens(config_of(model, first, [], eval_fraction=0).data)
    mixed = estimate_tokens(
        config_of(model, first, [{"path": str(first), "weight": 2}], eval_fraction=0).data
    )
    assert alone is not None
    assert mixed == pytest.approx(3 * alone, abs=2)
