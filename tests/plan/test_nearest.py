"""nearest_fits: what a person may choose from when a run does not fit, each with its plan."""

import pytest

from gpubloom.plan import DoesNotFit, Hardware, TrainConfig, named_shape, nearest_fits, plan_on
from tests.plan.machines import LARGE_H200, config_of

CASES = [("130b", LARGE_H200), ("7b", "RTX 4090, 64 GB host"), ("70b", "RTX 4090, 64 GB host")]


@pytest.mark.parametrize(("shape", "machine"), CASES)
def test_every_choice_fits_and_the_first_is_the_one_that_the_refusal_names(shape: str, machine: str) -> None:
    hardware, size = Hardware.parse(machine), named_shape(shape)
    found = nearest_fits(config_of(), hardware, shape=size)
    with pytest.raises(DoesNotFit) as refusal:
        plan_on(hardware, config_of(), shape=size)
    named = refusal.value.nearest
    assert named is not None
    for name, value in found[0].changes.items():
        part, _, field = name.rpartition(".")
        assert getattr(getattr(named, part) if part else named, field) == value
    for each in found:
        assert each.plan.host is not None
        assert each.plan.gpu is not None
        assert each.plan.host.total <= each.plan.host.limit_bytes
        assert each.plan.gpu.total <= each.plan.gpu.limit_bytes
        assert each.plan.tokens_per_second > 0


def test_no_choice_only_repeats_another_with_smaller_numbers_or_more_changes() -> None:
    found = nearest_fits(
        config_of(batch_size=64, memory={"gpu_budget_gb": 20, "host_budget_gb": 20}),
        Hardware.parse("RTX 4090, 64 GB host"),
        shape=named_shape("1.5b"),
        at_most=10,
    )
    assert len(found) > 1
    named = [set(each.changes) for each in found]
    texts = [
        {(key, value) for key, value in each.changes.items() if isinstance(value, str)} for each in found
    ]
    for later in range(len(found)):
        for earlier in range(later):
            assert not (named[later] >= named[earlier] and texts[later] >= texts[earlier])


def test_a_run_that_fits_needs_no_choice() -> None:
    assert nearest_fits(TrainConfig(), Hardware.parse("H200, 125 GiB host")) == ()
