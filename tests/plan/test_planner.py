"""plan(): what a run needs and whether it fits, from shapes and a described machine alone."""

import pytest

from gpubloom.plan import PRESETS, Gpu, Hardware, ModelConfig, ModelShape, TrainConfig, plan
from gpubloom.plan.gpus import peak_flops

LAPTOP = Hardware(name="laptop", host_memory_bytes=16_000_000_000, cpu_cores=8)
H200 = Hardware(
    name="box",
    host_memory_bytes=1_536_000_000_000,
    cpu_cores=64,
    gpus=(Gpu(name="H200", memory_bytes=141_000_000_000, flops=400e12),),
)


def test_parameters_are_counted_as_llama_counts_them() -> None:
    llama_8b = ModelShape(128_256, 4_096, 32, 32, 8, 14_336, 8_192, tie_embeddings=False)
    assert llama_8b.parameters == 8_030_261_248


def test_every_preset_has_a_valid_shape_and_they_grow() -> None:
    counts = [shape.parameters for shape in PRESETS.values()]
    assert counts == sorted(counts)


def test_a_small_run_fits_and_says_what_it_rests_on() -> None:
    answer = plan(TrainConfig(), LAPTOP, tokens_per_epoch=1_000_000)
    assert answer.device == "cpu"
    assert answer.precision_reason.startswith("fp32: ")
    assert answer.parameters == PRESETS["tiny"].parameters
    assert answer.memory.total == answer.memory_total_bytes < answer.memory_limit_bytes
    assert answer.memory.optimizer == 8 * answer.parameters
    assert answer.steps == 10 * 245
    assert answer.seconds is not None
    assert "8 CPU cores" in answer.assumptions[0]


def test_max_steps_ends_the_plan_early() -> None:
    assert plan(TrainConfig(max_steps=7), LAPTOP, tokens_per_epoch=1_000_000).steps == 7


def test_a_gpu_is_used_when_there_is_one_and_bf16_has_a_reason() -> None:
    answer = plan(TrainConfig(), H200)
    assert (answer.device, answer.precision) == ("cuda", "bf16")
    assert answer.precision_reason == "bf16: H200 supports it"


def test_a_gpu_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="cuda:1 was asked for, but box has 1 usable GPUs"):
        plan(TrainConfig(device="cuda:1"), H200)
    with pytest.raises(ValueError, match="laptop has 0 usable GPUs"):
        plan(TrainConfig(device="cuda"), LAPTOP)


def test_what_cannot_fit_is_refused_with_the_memory_it_needs() -> None:
    with pytest.raises(
        ValueError,
        match=r"laptop \(CPU\) has 16.0 GB of memory.*needs 2..\.. GB; model.preset 125m would fit",
    ):
        plan(TrainConfig(model=ModelConfig(preset="8b")), LAPTOP)


def test_a_batch_that_cannot_fit_names_one_that_does() -> None:
    config = TrainConfig(model=ModelConfig(preset="125m"), batch_size=256)
    with pytest.raises(ValueError, match=r"batch_size (\d+) would fit") as caught:
        plan(config, LAPTOP)
    fitting = int(str(caught.value).split("batch_size ")[1].split()[0])
    assert plan(config.model_copy(update={"batch_size": fitting}), LAPTOP).memory_total_bytes < 16e9


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [("NVIDIA H200", 989), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA A10", 125), ("Somebody's GPU", 50)],
)
def test_known_gpus_are_planned_with_their_own_speed(name: str, teraflops: float) -> None:
    assert peak_flops(name) == teraflops * 1e12
