"""When a model is divided among devices, what each then holds, and what is said when it does not fit."""

from typing import Any

import pytest

from gpubloom.plan import DoesNotFit, Hardware, Plan, TrainConfig, named_shape, plan, processes_on, share_of
from gpubloom.plan.planner import plan_on
from tests.errors import raises


def config(**fields: Any) -> TrainConfig:
    return TrainConfig.model_validate({"batch_size": 1, "model": {"context_length": 2_048}, **fields})


def planned(machine: str, shape: str = "llama3-8b", **fields: Any) -> Plan:
    return plan_on(Hardware.parse(machine), config(**fields), shape=named_shape(shape))


def test_what_fits_no_single_device_is_sharded_among_all_of_them() -> None:
    found = planned("4x H100, 32 GB host")
    assert found.executor == "sharded"
    assert found.memory_total_bytes <= found.memory_limit_bytes
    assert found.placement_text.startswith("Sharded across 4 GPUs;")
    assert processes_on(Hardware.parse("4x H100, 32 GB host"), config(), shape=named_shape("llama3-8b")) == 4


def test_what_fits_a_single_device_is_not_sharded_unless_asked_for() -> None:
    assert planned("4x H100, 2000 GB host").executor == "block"
    assert planned("4x H100, 2000 GB host", executor="sharded").executor == "sharded"
    assert planned("H100, 2000 GB host").executor == "block"


def test_each_device_holds_its_part_of_masters_gradients_and_moments() -> None:
    shape = named_shape("llama3-8b")
    memory = {}
    for devices in (2, 4, 8):
        found = planned(f"{devices}x H200, 64 GB host", executor="sharded").gpu
        assert found is not None
        assert found.optimizer == pytest.approx(8 * shape.parameters / devices, rel=0.01)
        assert found.weights > 4 * shape.parameters / devices
        memory[devices] = found.weights + found.gradients + found.optimizer
    # Halving the parts halves everything but the layers and ends that are gathered whole.
    assert (memory[2] - memory[4]) / (memory[4] - memory[8]) == pytest.approx(2, rel=0.01)


def test_more_devices_never_need_more_memory_each_and_never_give_fewer_tokens() -> None:
    found = [planned(f"{devices}x H200, 64 GB host", executor="sharded") for devices in (2, 3, 4, 6, 8)]
    held = [each.memory_total_bytes - each.memory.activations for each in found]
    assert held == sorted(held, reverse=True)
    speeds = [each.tokens_per_second for each in found]
    assert speeds == sorted(speeds)


def test_frozen_weights_of_adapters_are_sharded_too() -> None:
    found = planned("8x H100, 64 GB host", "llama3-70b", method="lora")
    assert found.executor == "sharded"
    assert found.gpu is not None
    assert found.gpu.weights < 2 * named_shape("llama3-70b").parameters / 4


def test_processes_on_a_cpu_share_one_memory() -> None:
    machine = Hardware.parse("64 GB host, 8 cores")
    asked = config(processes=2, model={"preset": "1b", "context_length": 256})
    assert plan(asked, share_of(machine, 2)).executor == "block"
    small = Hardware.parse("32 GB host, 8 cores")
    found = plan(asked, share_of(small, 2))
    assert found.executor == "sharded"
    assert found.placement_text.startswith("Sharded across 2 processes;")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"processes": 1}, "would fit with processes 4"),
        ({"processes": 1, "executor": "sharded"}, "Sharded across 1 process, this run needs"),
        ({"executor": "block"}, "The usable host memory is"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(DoesNotFit) as refused:
        planned("4x H100, 32 GB host", **fields)
    assert expected in str(refused.value)
    nearest = refused.value.nearest
    assert nearest is not None
    if "processes 4" in expected:
        assert plan_on(
            Hardware.parse("4x H100, 32 GB host"), nearest, shape=named_shape("llama3-8b")
        ).executor == ("sharded")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"method": "qlora"}, "sharded_quantized"),
        ({"memory": "stream"}, "sharded_streamed"),
        ({"backend": "trl", "model": {"path": "/models/tiny"}}, "sharded_needs_engine"),
    ],
)
def test_what_cannot_be_sharded_is_rejected_by_the_config(fields: dict[str, Any], code: str) -> None:
    with raises(ValueError, code=code):
        config(**{"executor": "sharded", **fields})


def test_a_plan_of_before_means_whole_models() -> None:
    found = planned("H100, 200 GB host").model_dump(mode="json")
    del found["executor"]
    assert Plan.model_validate(found).executor == "block"
