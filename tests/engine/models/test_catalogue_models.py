"""Every kind of model in the catalogue is one that the engine can train: it opens them without weights."""

import json
import math
from importlib.resources import files
from typing import Any

import pytest

from gpubloom.engine.models.hugging_face import HuggingFaceBlocks
from gpubloom.hub.catalogue import catalogue

LISTED = [
    model
    for family in json.loads((files("gpubloom.hub") / "catalogue.json").read_text(encoding="utf-8"))
    for model in family["models"]
]
# One of each structure; sizes make no other.
STRUCTURES = {
    (model["config"]["model_type"], model["config"].get("new_decoder_architecture"), model["licence"]): model
    for model in LISTED
}


@pytest.mark.parametrize("model", STRUCTURES.values(), ids=lambda model: model["id"])
def test_a_listed_model_is_opened_by_the_engine_with_the_parameters_of_the_list(
    model: dict[str, Any],
) -> None:
    from transformers import AutoConfig

    config = dict(model["config"])
    opened = HuggingFaceBlocks(AutoConfig.for_model(config.pop("model_type"), **config))
    [known] = [each for family in catalogue() for each in family.models if each.id == model["id"]]
    counted = sum(
        math.prod(tensor.shape) for block in opened.blocks for tensor in (*block.trained, *block.frozen)
    )
    assert counted == known.parameters
