"""CPU, fp32: where a model lives changes no bit of what it learns."""

import pytest

from tests.engine.placements.training import (
    CLIP_NORM,
    FEW,
    HOST,
    PLACEMENTS,
    REFERENCE,
    Outcome,
    Trained,
    cycled,
)

FAMILIES = (
    "llama",
    "llama-tied",
    "qwen2-mixed",
    "qwen3",
    "mistral",
    "gemma2",
    "phi",
    "falcon",
    "gpt2",
    "gpt_neox",
    "qwen3_moe",
)


def assert_it_was_a_real_training(outcome: Outcome) -> None:
    assert min(outcome.norms) > CLIP_NORM, "a step was not clipped"
    assert outcome.learnt


@pytest.mark.long
@pytest.mark.parametrize(("name", "accumulation"), [("own", 1), ("own tied", 2)])
def test_the_own_llama_learns_the_same_bits_under_every_placement(name: str, accumulation: int) -> None:
    trained = Trained.family(name, accumulation=accumulation)
    reference = trained.outcome(REFERENCE)
    assert_it_was_a_real_training(reference)
    for placement in PLACEMENTS:
        if placement != REFERENCE:
            trained.outcome(placement).assert_same(reference, placement)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns_the_same_bits_under_every_kind_of_placement(name: str) -> None:
    # Families take turns, so that both ways of summing meet all of them.
    accumulation = 1 + FAMILIES.index(name) % 2
    trained = Trained.family(name, accumulation=accumulation)
    reference = trained.outcome(REFERENCE)
    assert_it_was_a_real_training(reference)
    for placement in FEW:
        trained.outcome(placement).assert_same(reference, placement)
    other = Trained.family(name, accumulation=3 - accumulation)
    other.outcome("mixed otherwise", steps=5).assert_same(other.outcome(REFERENCE, steps=5), "the other sum")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradients_that_are_computed_twice_share_the_memory_of_two(precision: str) -> None:
    trained = Trained.own(tied=False, precision=precision)
    executor = trained.executor(cycled(HOST, gradients_twice=3)(trained.model))
    layers = executor.stores[1:4]
    assert len({store.gradient.data_ptr() for store in layers}) == 2
    everything = trained.outcome(cycled(HOST, gradients_twice=3)(trained.model))
    everything.assert_same(trained.outcome(cycled(HOST)(trained.model)), "kept gradients")
