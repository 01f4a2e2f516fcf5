"""Column paths, and columns that nobody reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpubloom.datasets import ExampleFile, Mapping, ModelFiles, ReadingOptions, read_examples, to_example
from gpubloom.datasets.columns import MISSING, nested_paths, value_at
from gpubloom.datasets.conversion import SideChooser, Split
from tests.datasets.files import write_jsonl
from tests.tiny_models import make_tiny_model

SEED_TASK = {
    "id": "seed_task_0",
    "name": "breakfast",
    "instruction": "Suggest a breakfast.",
    "instances": [{"input": "no eggs", "output": "Oatmeal."}],
    "is_classification": False,
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("instances[0].output", "Oatmeal."),
        ("name", "breakfast"),
        ("instances[1].output", MISSING),
        ("instances.output", MISSING),
        ("nothing[0]", MISSING),
    ],
)
def test_a_path_leads_into_a_column(path: str, expected: object) -> None:
    assert value_at(SEED_TASK, path) == expected


def test_a_column_with_the_very_name_of_a_path_comes_first_and_json_in_a_table_is_entered() -> None:
    assert value_at({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert value_at({"a": json.dumps([{"b": "c"}])}, "a[0].b") == "c"


def test_paths_that_are_offered_lead_to_what_they_name() -> None:
    paths = list(nested_paths({**SEED_TASK, "odd": {"a.b": "x"}}))
    assert paths == ["instances[0].input", "instances[0].output"]


def test_nested_rows_train_after_one_mapping() -> None:
    mapping = Mapping.by_hand(
        {"instruction": "instruction", "input": "instances[0].input", "output": "instances[0].output"}
    )
    example = to_example(SEED_TASK, mapping)
    assert example.messages is not None
    assert [turn.content for turn in example.messages] == ["Suggest a breakfast.\n\nno eggs", "Oatmeal."]


def read(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> Any:
    model = ModelFiles.load(make_tiny_model(tmp_path / "model"))
    file = write_jsonl(tmp_path / "data.jsonl", rows)
    sides: dict[str, list[tuple[int, ...]]] = {"train": [], "eval": []}
    found = read_examples(
        [ExampleFile(file)],
        None,
        ReadingOptions(context_length=64, **options),
        model,
        lambda side, example, times: sides[side].extend([tuple(example.tokens.ids)] * times),
    )
    return found, sides


def test_every_column_that_is_not_used_is_named(tmp_path: Path) -> None:
    row = {"instruction": "Q", "output": "A", "category": "qa", "source": "web", "empty": ""}
    found, _ = read(tmp_path, [row])
    assert found.train[0].unused_columns == ("category", "source")
    assert any("category, source" in finding.sentence for finding in found.findings)


def test_a_small_file_holds_out_the_asked_share_and_trains_the_rest_in_order(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {number}?", "completion": f"It is {number}."} for number in range(120)]
    found, sides = read(tmp_path, rows, eval_fraction=0.05)
    assert len(sides["eval"]) >= 6
    assert len(sides["eval"]) + len(sides["train"]) == 120
    _, whole = read(tmp_path, rows)
    held = set(sides["eval"])
    assert sides["train"] == [ids for ids in whole["train"] if ids not in held]
    assert found.sides == {"train": len(sides["train"]), "eval": len(sides["eval"])}


def test_two_examples_never_stand_on_one_side_alone_and_equal_ones_stay_together() -> None:
    for seed in range(50):
        for fraction in (0.01, 0.5, 0.98):
            chooser: SideChooser[bytes] = SideChooser(Split(fraction, seed))
            digests = [bytes([number % 3]) * 8 for number in range(9)]
            chosen = [pair for digest in digests for pair in chooser.add(digest, digest)]
            chosen += chooser.rest()
            held = {item for side, item in chosen if side == "eval"}
            kept = {item for side, item in chosen if side == "train"}
            assert held
            assert kept
            assert not held & kept
