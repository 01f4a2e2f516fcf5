"""plan(): what a run needs, whether it fits, and how many processes it has on a described machine."""

import json
from pathlib import Path

import pytest

from gpubloom.plan import (
    PRESETS,
    Gpu,
    Hardware,
    ModelConfig,
    ModelShape,
    Plan,
    TrainConfig,
    costs,
    plan,
    plan_on,
    processes_on,
    share_of,
)
from tests.errors import raises

LAPTOP = Hardware(name="laptop", host_memory_bytes=16_000_000_000, cpu_cores=8)
H200 = Hardware(
    name="box",
    host_memory_bytes=1_536_000_000_000,
    cpu_cores=64,
    gpus=(Gpu(name="H200", memory_bytes=141_000_000_000, flops=400e12),),
)

TWO = Hardware.parse("2x A100 80GB, 256 GB host, 16 cores")
NONE = Hardware.parse("64 GB host, 8 cores")


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
    with raises(ValueError, code="device_not_found", match="cuda:1.* of box is 1"):
        plan(TrainConfig(device="cuda:1"), H200)
    with raises(ValueError, code="device_not_found", match="of laptop is 0"):
        plan(TrainConfig(device="cuda"), LAPTOP)


def test_what_cannot_fit_is_refused_with_the_memory_it_needs() -> None:
    with raises(
        ValueError,
        code="does_not_fit",
        match=r"16\.0 GB.*2..\.. GB.*model.preset 125m",
    ):
        plan(TrainConfig(model=ModelConfig(preset="8b")), LAPTOP)


def test_a_batch_that_cannot_fit_names_one_that_does() -> None:
    config = TrainConfig(model=ModelConfig(preset="125m"), batch_size=256)
    with raises(ValueError, code="does_not_fit") as caught:
        plan(config, LAPTOP)
    fitting = int(str(caught.value).split("batch_size ")[1].split()[0].rstrip("."))
    assert plan(config.model_copy(update={"batch_size": fitting}), LAPTOP).memory_total_bytes < 16e9


def test_a_gpu_without_bf16_computes_in_fp16() -> None:
    machine = Hardware.parse("T4, 32 GB host")
    assert plan(TrainConfig(), machine).precision_reason == "fp16 with loss scaling: T4 does not support bf16"


def test_a_cpu_with_instructions_for_bf16_uses_them_where_layers_are_wide() -> None:
    able = LAPTOP.model_copy(update={"cpu_bf16": True})
    wide, narrow = (TrainConfig(model=ModelConfig(preset=preset)) for preset in ("small", "tiny"))
    assert plan(wide, able).precision_reason.startswith("bf16: this CPU has bf16 instructions")
    assert plan(wide, able).step_seconds < plan(wide, LAPTOP).step_seconds
    assert [plan(narrow, able).precision, plan(wide, LAPTOP).precision] == ["fp32", "fp32"]
    assert plan(wide.model_copy(update={"precision": "fp32"}), able).precision == "fp32"


def test_plans_of_jobs_from_before_placements_can_still_be_read() -> None:
    old = plan(TrainConfig(), LAPTOP).model_dump(mode="json")
    fields = ("device", "precision", "precision_reason", "parameters", "memory", "memory_total_bytes")
    more = ("memory_limit_bytes", "tokens_per_step", "tokens_per_second", "steps", "seconds", "assumptions")
    before = {name: old[name] for name in (*fields, *more)} | {"version": 1, "placement": "resident"}
    assert Plan.model_validate(before).placement is None


def test_a_budget_is_a_limit_even_where_there_is_more() -> None:
    config = TrainConfig.model_validate({"memory": {"gpu_budget_gb": 3}})
    assert plan(config, H200).memory_limit_bytes == 3_000_000_000
    with raises(
        ValueError,
        code="does_not_fit",
        match=r"1\.0 GB .*memory.gpu_budget_gb 1\.\d",
    ):
        plan(TrainConfig.model_validate({"batch_size": 1, "memory": {"gpu_budget_gb": 1}}), H200)


def test_rows_longer_than_a_table_of_positions_are_refused(tmp_path: Path) -> None:
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512, "vocab_size": 300}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    with raises(ValueError, code="context_too_long", match="1,024 .* 512 "):
        plan(TrainConfig(model=ModelConfig(path=str(tmp_path))), LAPTOP)
    short = TrainConfig(model=ModelConfig(path=str(tmp_path), context_length=512))
    assert plan(short, LAPTOP).parameters == 300 * 64 + 512 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 128


def test_by_default_every_gpu_has_a_process() -> None:
    assert processes_on(TWO, TrainConfig()) == 2
    assert processes_on(TWO, TrainConfig(processes="auto")) == 2
    assert processes_on(NONE, TrainConfig()) == 1


@pytest.mark.parametrize("fields", [{"device": "cuda:1"}, {"device": "cpu"}, {"processes": 1}])
def test_one_process_where_one_device_is_named(fields: dict[str, object]) -> None:
    assert processes_on(TWO, TrainConfig.model_validate(fields)) == 1


def test_a_model_whose_copies_do_not_fit_into_host_memory_has_fewer_processes() -> None:
    small = Hardware.parse("2x RTX 3060, 64 GB host, 8 cores")
    config = TrainConfig.model_validate({"model": {"preset": "3b"}, "batch_size": 1})
    plan(config, small)
    with raises(ValueError, code="does_not_fit"):
        plan(config, share_of(small, 2))
    assert processes_on(small, config) == 1


def test_more_processes_than_gpus_are_refused() -> None:
    with raises(
        ValueError,
        code="more_processes_than_gpus",
        match="3.* 2 GPUs",
    ):
        processes_on(TWO, TrainConfig(processes=3))


@pytest.mark.parametrize("wrong", [0, "many", 1.5, True, 2_000])
def test_a_number_that_is_none_is_refused_in_words(wrong: object) -> None:
    with raises(ValueError, code="invalid_processes", match="1,024"):
        TrainConfig.model_validate({"processes": wrong})


def test_a_plan_counts_the_rows_of_all_processes() -> None:
    alone = plan_on(TWO, TrainConfig(processes=1), tokens_per_epoch=1_000_000)
    both = plan_on(TWO, TrainConfig(), tokens_per_epoch=1_000_000)
    assert both.tokens_per_step == 2 * alone.tokens_per_step
    assert both.steps is not None
    assert alone.steps is not None
    assert both.steps == pytest.approx(alone.steps / 2, rel=0.01)


def test_a_cluster_is_told_how_many_and_is_not_this_machine() -> None:
    with raises(ValueError, code="cluster_needs_processes"):
        TrainConfig(cluster="ray")
    many = TrainConfig(cluster="ray", processes=6)
    assert processes_on(TWO, many) == 6
    assert plan_on(TWO, many).host == plan_on(TWO, TrainConfig(processes=1)).host


def test_a_cpu_run_that_compiles_plans_the_step_from_which_on_it_is_compiled() -> None:
    asked = {"model": {"preset": "nano"}, "compile": "on"}
    answer = plan(TrainConfig.model_validate(asked), LAPTOP)
    assert answer.compiled_from_step is not None
    eager = (answer.compiled_from_step - 1) * answer.step_seconds
    assert costs.CPU_COMPILE_SECONDS <= eager < costs.CPU_COMPILE_SECONDS + answer.step_seconds
    for other in ({"compile": "auto"}, {"compile": "off"}):
        assert plan(TrainConfig.model_validate({**asked, **other}), LAPTOP).compiled_from_step is None
