"""The pre-flight counts what the trainer then trains on, and says what a person should know."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.datasets import ModelFiles, Preflight, ReadingOptions, RopeScaling, example_files, preflight
from gpubloom.engine import Dataset
from gpubloom.engine.data import Loader
from gpubloom.engine.data.packing import PackedRows
from gpubloom.plan import TrainConfig, steps_of
from tests.datasets.files import write_jsonl
from tests.errors import raises
from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Question {number}?", "completion": f"Answer {number}. " * (1 + number % 7), **more}
        for number in range(count)
    ]


def config_of(model: Path, path: Path, context_length: int = 64, **fields: Any) -> TrainConfig:
    data = {"kind": "examples", "train_path": str(path), **fields.pop("data", {})}
    chosen = {"path": str(model), "context_length": context_length}
    return TrainConfig.model_validate({"model": chosen, "data": data, **fields})


def count(config: TrainConfig) -> Preflight:
    assert config.data.tokenizer.path is not None
    return preflight(
        *example_files(config.data),
        ReadingOptions.of(config.data, config.context_length),
        ModelFiles.load(Path(config.data.tokenizer.path)),
        packing=config.data.packing,
    )


def kinds(found: Preflight) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in found.findings}


@pytest.mark.parametrize(
    ("context_length", "data", "settings"),
    [
        (64, {}, {"batch_size": 4, "epochs": 3}),
        (32, {"packing": False}, {"batch_size": 3, "accumulation": 2}),
        (256, {"eval_fraction": 0.2}, {"batch_size": 500, "epochs": 2}),
        (48, {"too_long": "skip", "train_on": "everything"}, {"batch_size": 8, "max_steps": 7}),
    ],
)
def test_counts_and_steps_are_those_of_the_run(
    model: Path, tmp_path: Path, context_length: int, data: dict[str, Any], settings: dict[str, Any]
) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", [*rows(150), {"prompt": "no answer"}, *rows(20)])
    config = config_of(model, path, context_length, data=data, **settings)
    found = count(config)
    run = Dataset.open(config.data, context_length)
    assert isinstance(run.train, PackedRows)
    assert isinstance(run.eval, PackedRows)
    for side, packed in ((found.train, run.train), (found.eval, run.eval)):
        assert side is not None
        assert (side.examples, side.sequences) == (len(packed.examples), len(packed))
        assert side.tokens == len(packed.examples.tokens)
        assert side.trained_tokens == packed.examples.trained_count
    assert found.sequence_length == run.train.length
    assert (found.train_file.used, found.train_file.rows) == (run.rows_used, run.rows_total)
    loader = Loader(run.train, batch_size=config.batch_size, accumulation=config.accumulation, seed=0)
    steps = config.epochs * loader.steps_per_epoch
    assert steps_of(config, found.train.sequences) == min(steps, config.max_steps or steps)


def test_what_a_person_should_know_is_a_finding_with_a_next_step(model: Path, tmp_path: Path) -> None:
    given = [*rows(20, category="qa"), *rows(5, category="qa"), {"prompt": "Q?", "completion": "w " * 400}]
    path = write_jsonl(tmp_path / "data.jsonl", [*given, {"prompt": "unanswered"}])
    found = count(config_of(model, path, 512, data={"eval_fraction": 0}))
    assert kinds(found) == {
        "rows_unused": "warning",
        "rows_truncated": "info",
        "columns_unused": "info",
        "rows_duplicated": "warning",
        "not_evaluated": "warning",
    }
    assert all(finding.next_step and finding.title for finding in found.findings)
    assert found.duplicates == 5
    assert found.train_file.unused_columns == ("category",)
    assert (found.train_file.unusable, found.train_file.truncated) == (1, 1)
    assert found.truncated_share == pytest.approx(1 / 26)
    (truncated,) = [finding for finding in found.findings if finding.kind == "rows_truncated"]
    assert "1 of 26 " in truncated.sentence, "the same share as beside it"


def test_validation_rows_that_are_trained_too_are_counted(model: Path, tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", rows(20))
    held = write_jsonl(tmp_path / "eval.jsonl", rows(30)[15:])
    found = count(config_of(model, train, 512, data={"eval_path": str(held)}))
    assert found.eval is not None
    assert (found.train.examples, found.eval.examples, found.overlap) == (20, 15, 5)
    assert kinds(found) == {"eval_overlap": "warning"}


def test_rows_that_the_template_rejects_are_counted_apart(tmp_path: Path) -> None:
    strict = make_tiny_model(tmp_path / "strict")
    template = strict / "chat_template.jinja"
    refuse = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    )
    template.write_text(refuse + template.read_text())
    path = write_jsonl(tmp_path / "data.jsonl", [*rows(4), *rows(8, system="Be brief.")])
    found = count(config_of(strict, path, data={"eval_fraction": 0}))
    assert found.train_file.rejected_by_template == 8
    assert kinds(found)["rows_rejected"] == "critical"
    assert "System role not supported" in found.findings[0].sentence


def test_a_file_without_any_usable_row_says_why(model: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", [{"prompt": "a", "completion": ""}] * 3)
    with raises(ValueError, code="no_examples"):
        count(config_of(model, path, data={"format": "prompt_completion"}))


def test_sequences_beyond_the_positions_of_the_model_are_told(model: Path, tmp_path: Path) -> None:
    positions = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    path = write_jsonl(tmp_path / "data.jsonl", [*rows(20), {"prompt": "Q?", "completion": "w " * positions}])
    assert "context_beyond_model" not in kinds(count(config_of(model, path, positions)))
    found = count(config_of(model, path, 4 * positions))
    assert kinds(found)["context_beyond_model"] == "critical"
    assert f"{positions:,} positions" in found.findings[0].sentence


def test_a_scaling_of_positions_is_said_instead_of_a_context_beyond_the_model(
    model: Path, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "long.jsonl", [{"text": "The keeper says it again. " * 120}] * 3)
    config = config_of(model, path, 1_024)
    assert config.data.tokenizer.path is not None
    found = preflight(
        *example_files(config.data),
        ReadingOptions.of(config.data, config.context_length),
        ModelFiles.load(Path(config.data.tokenizer.path)),
        rope=RopeScaling("yarn"),
    )
    assert "context_beyond_model" in kinds(count(config))
    (said,) = [finding for finding in found.findings if finding.kind == "rope_scaled"]
    assert said.evidence["scaled_positions"] == 1_024
    assert "context_beyond_model" not in kinds(found)


def test_a_guessed_encoding_is_a_warning_until_somebody_names_it(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "cities.csv"
    lines = [f"Welche Stadt ist Nummer {number}?,Köln\n" for number in range(30)]
    path.write_bytes("".join(["prompt,completion\n", *lines]).encode("cp1252"))
    assert kinds(count(config_of(model, path)))["encoding_guessed"] == "warning"
    named = config_of(model, path, data={"encoding": "windows-1252"})
    assert "encoding_guessed" not in kinds(count(named))
