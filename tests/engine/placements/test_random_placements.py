"""Placements that nobody thought of: any that the rules allow gives the same bits."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubloom.plan.placement import BlockPlacement, Placement
from tests.engine.placements.training import CHUNK, REFERENCE, Outcome, Trained

STEPS = 3

# Weights that are made from a master need one on the device, and nobody keeps them until the backward pass.
_cast = st.just(BlockPlacement(weights="cast"))
_others = st.builds(
    BlockPlacement,
    state=st.sampled_from(["device", "host", "link"]),
    weights=st.sampled_from(["device", "stream"]),
    keep=st.booleans(),
)
_layers = st.one_of(_others, _cast)
_ends = _layers.map(lambda block_placement: block_placement.model_copy(update={"keep": False}))


@cache
def trained(tied: bool, precision: str, accumulation: int) -> Trained:
    return Trained.own(tied=tied, precision=precision, accumulation=accumulation)


@cache
def reference(tied: bool, precision: str, accumulation: int) -> Outcome:
    return trained(tied, precision, accumulation).outcome(REFERENCE, STEPS)


@pytest.mark.long
@given(
    ends=st.tuples(_ends, _ends),
    layers=st.tuples(_layers, _layers, _layers),
    slots=st.integers(2, 4),
    offload_inputs=st.booleans(),
    share_gradients=st.booleans(),
    tied=st.booleans(),
    precision=st.sampled_from(["fp32", "bf16", "fp16"]),
    accumulation=st.sampled_from([1, 2]),
)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_placement_gives_the_same_bits(
    ends: tuple[BlockPlacement, BlockPlacement],
    layers: tuple[BlockPlacement, ...],
    slots: int,
    offload_inputs: bool,
    share_gradients: bool,
    tied: bool,
    precision: str,
    accumulation: int,
) -> None:
    placement = Placement(
        embedding=ends[0],
        layers=layers,
        head=None if tied else ends[1],
        slots=slots,
        offload_inputs=offload_inputs,
        loss_chunk_tokens=CHUNK,
        share_gradients=share_gradients,
    )
    found = trained(tied, precision, accumulation).outcome(placement, STEPS)
    found.assert_same(reference(tied, precision, accumulation), placement)
