"""Machines in words, and what is assumed or measured about them."""

from typing import get_args

import pytest

from gpubloom.plan import Calibration, Hardware, TrainConfig, named_shape, plan
from gpubloom.plan.hardware import GPU_KINDS, peak_flops, rates_of
from gpubloom.plan.optimizer_config import OptimizerState
from tests.errors import raises

GIB = 2**30
STATES = get_args(OptimizerState)


def test_a_described_machine_counts_memory_as_it_is_sold() -> None:
    machine = Hardware.parse("H200, 1536 GB host")
    assert machine.host_memory_bytes == 1536 * GIB
    assert [gpu.name for gpu in machine.gpus] == ["H200"]
    assert 139 * GIB < machine.gpus[0].memory_bytes < 140 * GIB


@pytest.mark.parametrize(
    ("words", "gpus", "host", "cores"),
    [
        ("2x RTX 3060, 64 GB host, 8 cores", ["RTX 3060"] * 2, 64, 8),
        ("RTX 3060 12 GB, 64 GB RAM", ["RTX 3060"], 64, 16),
        ("4 cores, 16 GiB memory", [], 16, 4),
        ("1.5 TB host, 2 × A100 40 GB", ["A100", "A100"], 1536, 16),
        ("My own card 24 GB, 128 GB", ["My own card"], 128, 16),
    ],
)
def test_machines_are_described_in_plain_words(words: str, gpus: list[str], host: int, cores: int) -> None:
    machine = Hardware.parse(words)
    assert [gpu.name for gpu in machine.gpus] == gpus
    assert (machine.host_memory_bytes, machine.cpu_cores) == (host * GIB, cores)


def test_a_size_that_is_said_counts_more_than_the_usual_one() -> None:
    small, usual = Hardware.parse("A100 40 GB, 64 GB host"), Hardware.parse("A100, 64 GB host")
    assert 39 * GIB < small.gpus[0].memory_bytes < 40 * GIB < usual.gpus[0].memory_bytes


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("H200", "machine_without_memory"),
        ("Warp drive, 64 GB host", "unknown_gpu"),
        ("", "machine_without_memory"),
    ],
)
def test_a_description_that_is_not_understood_says_how_to_write_it(words: str, code: str) -> None:
    with raises(ValueError, code=code):
        Hardware.parse(words)


def test_measured_rates_replace_assumed_ones_and_are_no_assumptions() -> None:
    machine = Hardware.parse("H200, 125 GiB host, 16 cores")
    gpu = machine.gpus[0]
    assumed = rates_of(machine, gpu, "bf16")
    assert (assumed.matrix, assumed.link_up, assumed.link_both) == pytest.approx((730e12, 55e9, 50e9))
    assert assumed.host_adam == pytest.approx(117e9)
    assert len(assumed.assumptions) == 3
    calibration = Calibration(link_h2d=40e9, link_d2h=41e9, matrix_flops=600e12, host_adam_bytes_per_s=90e9)
    measured = rates_of(machine.model_copy(update={"calibration": calibration}), gpu, "bf16")
    assert (measured.matrix, measured.link_up, measured.link_down) == (600e12, 40e9, 41e9)
    assert measured.host_adam == 90e9
    assert measured.assumptions == ()


def test_the_host_optimizer_has_a_rate_for_each_kind_of_state() -> None:
    machine = Hardware.parse("H200, 125 GiB host, 16 cores")
    gpu = machine.gpus[0]
    whole, half, eight = (rates_of(machine, gpu, "bf16", state) for state in STATES)
    # Arithmetic limits the smaller ones, so they move fewer bytes a second.
    assert whole.host_adam > half.host_adam > eight.host_adam
    assert whole.host_memory == half.host_memory == eight.host_memory
    calibration = Calibration(
        host_adam_bytes_per_s=90e9, host_adam_bf16_bytes_per_s=80e9, host_adam_8bit_bytes_per_s=60e9
    )
    measured = machine.model_copy(update={"calibration": calibration})
    found = [rates_of(measured, gpu, "bf16", state).host_adam for state in STATES]
    assert found == [90e9, 80e9, 60e9]


def test_a_plan_with_8_bit_state_takes_as_long_as_that_kernel_was_measured() -> None:
    config = TrainConfig.model_validate({"optimizer": {"state": "8bit"}, "memory": "stream", "batch_size": 8})
    machine = Hardware.parse("H200, 125 GiB host, 16 cores")

    def seconds(rate: float) -> float:
        measured = Calibration(host_adam_bytes_per_s=90e9, host_adam_8bit_bytes_per_s=rate)
        found = machine.model_copy(update={"calibration": measured})
        return plan(config, found, shape=named_shape("qwen2.5-7b")).step_seconds

    assert seconds(5e9) > 1.5 * seconds(90e9)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [("NVIDIA H200", 989), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA A10", 125), ("Somebody's GPU", 50)],
)
def test_known_gpus_are_planned_with_their_own_speed(name: str, teraflops: float) -> None:
    assert peak_flops(name) == teraflops * 1e12


def test_every_known_gpu_can_be_described() -> None:
    for name in GPU_KINDS:
        assert Hardware.parse(f"{name}, 64 GB host").gpus[0].flops == GPU_KINDS[name].flops
