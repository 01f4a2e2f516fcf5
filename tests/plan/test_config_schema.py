"""The JSON schema of TrainConfig says what the code does: forms, command line and pages rely on it."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from gpubloom.plan import PRESETS, TrainConfig
from gpubloom.plan.fields import Situation

SCHEMA = TrainConfig.model_json_schema()

# Fields whose default depends on what a run starts from, and where a config that was resolved has them.
RESOLVED = {
    "learning_rate": "peak_learning_rate",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "optimizer.weight_decay": "optimizer.weight_decay",
    "optimizer.beta2": "optimizer.beta2",
}
FOLDER = {"model": {"path": "/models/x"}}


def _fields(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema["properties"].items():
        part = SCHEMA["$defs"].get(field.get("$ref", "").rpartition("/")[2])
        if part is None:
            yield prefix + name, field
        else:
            yield from _fields(part, f"{prefix}{name}.")


FIELDS = dict(_fields(SCHEMA))


def _default(name: str, *situations: Situation) -> float:
    """What a form shows: the first of the situations that the schema has a default for."""
    defaults: dict[str, float] = FIELDS[name]["defaults"]
    return next(defaults[situation] for situation in situations if situation in defaults)


@pytest.mark.parametrize(
    ("fields", "situations"),
    [
        ({}, ["new_model"]),
        ({"model": {"path": "/models/x", "random_weights": True}}, ["new_model"]),
        (FOLDER, ["pretrained"]),
        ({**FOLDER, "method": "lora"}, ["adapters", "pretrained"]),
        ({**FOLDER, "method": "qlora"}, ["adapters", "pretrained"]),
        ({"method": "lora"}, ["adapters", "new_model"]),
    ],
)
def test_conditional_defaults_of_the_schema_are_those_that_a_run_uses(
    fields: dict[str, object], situations: list[Situation]
) -> None:
    config = TrainConfig.model_validate(fields)
    for name, attribute in RESOLVED.items():
        assert attrgetter(attribute)(config) == _default(name, *situations)


def test_no_other_field_has_conditional_defaults() -> None:
    assert {name for name, field in FIELDS.items() if "defaults" in field} == set(RESOLVED)


def test_choices_are_the_values_that_are_accepted() -> None:
    for name, field in FIELDS.items():
        if "choices" in field and name != "model.preset":
            said = next((part for part in field.get("anyOf", ()) if "enum" in part), field)
            accepted = ["false", "true"] if said["type"] == "boolean" else said["enum"]
            assert sorted(choice["value"] for choice in field["choices"]) == sorted(accepted), name


def test_presets_are_described_by_their_shapes() -> None:
    choices = {choice["value"]: choice["label"] for choice in FIELDS["model.preset"]["choices"]}
    assert list(choices) == list(PRESETS)
    for name, shape in PRESETS.items():
        assert f"{shape.layers} layers, {shape.hidden_size:,} wide" in choices[name]
        assert TrainConfig.model_validate({"model": {"preset": name}}).model.preset == name


def test_every_field_has_a_title_and_says_what_it_is() -> None:
    untold = {name for name, field in FIELDS.items() if "description" not in field}
    assert untold == {"version", "name"}
    automatic = {name for name, field in FIELDS.items() if field["title"] == name.replace("_", " ").title()}
    # A name of one word is its own title.
    assert all("_" not in name for name in automatic)
