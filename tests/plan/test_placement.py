"""A placement as JSON: short to read, and the same placement again when it is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpubloom.plan import BlockPlacement, Placement
from gpubloom.plan.placement import resident, streamed
from tests.errors import raises

LAYER = st.builds(
    BlockPlacement,
    state=st.sampled_from(["device", "host", "link"]),
    weights=st.sampled_from(["device", "stream"]),
    keep=st.booleans(),
) | st.just(BlockPlacement(weights="cast"))


@given(st.lists(LAYER, min_size=1, max_size=40), st.booleans())
def test_json_of_a_placement_gives_the_same_placement(layers: list[BlockPlacement], tied: bool) -> None:
    placement = Placement(
        embedding=BlockPlacement(), layers=tuple(layers), head=None if tied else BlockPlacement()
    )
    assert Placement.model_validate_json(placement.model_dump_json()) == placement
    assert Placement.model_validate(placement.model_dump()) == placement


def test_alike_layers_are_one_entry() -> None:
    text = json.loads(resident(96, tied=True).model_dump_json())
    assert text["layers"] == [{"layers": "0-95", "state": "device", "weights": "device", "keep": True}]
    layers = (*streamed(3, tied=True).layers, BlockPlacement(), *streamed(1, tied=True).layers)
    mixed = Placement(embedding=BlockPlacement(), layers=layers, head=None)
    assert [group["layers"] for group in json.loads(mixed.model_dump_json())["layers"]] == ["0-2,4", "3"]


def test_groups_that_leave_a_layer_out_are_refused() -> None:
    with raises(ValidationError, code="invalid_placement"):
        Placement.model_validate({"embedding": {}, "head": None, "layers": [{"layers": "0,2"}]})


@pytest.mark.parametrize("other", [{"state": "host"}, {"state": "link"}, {"keep": True}])
def test_weights_that_could_not_be_cast_are_refused(other: dict[str, object]) -> None:
    with raises(ValidationError, code="invalid_placement"):
        BlockPlacement.model_validate({"weights": "cast", **other})
