"""What holds for every plan, whatever the model, the batch and the machine."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpubloom.plan import DoesNotFit, Gpu, Hardware, Placement, Plan, TrainConfig, plan
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.memory import residency_of
from gpubloom.plan.request import PlanRequest
from gpubloom.plan.search import placement, residency, search

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def shapes(draw: st.DrawFn) -> DecoderShape:
    heads = draw(st.integers(1, 32))
    config: dict[str, Any] = {
        "model_type": draw(st.sampled_from(["llama", "qwen2", "gemma3_text", "gpt_neox"])),
        "vocab_size": draw(st.sampled_from([257, 32_000, 151_936])),
        "hidden_size": heads * 128,
        "num_attention_heads": heads,
        "head_dim": 128,
        "num_hidden_layers": draw(st.integers(1, 60)),
        "intermediate_size": draw(st.integers(256, 20_000)),
        "tie_word_embeddings": draw(st.booleans()),
    }
    if config["model_type"] == "gemma3_text":
        # Two kinds of layers: some see a window only.
        kinds = ["sliding_attention", "sliding_attention", "full_attention"]
        config["layer_types"] = [kinds[index % 3] for index in range(config["num_hidden_layers"])]
        config["sliding_window"] = 512
    return decoder_shape(config)


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "batch_size": draw(st.sampled_from([1, 2, 8, 32])),
            "accumulation": draw(st.sampled_from([1, 1, 4])),
            "method": draw(st.sampled_from(["full", "full", "lora", "qlora"])),
            "precision": draw(st.sampled_from(["auto", "auto", "fp32"])),
            "compile": draw(st.sampled_from(["auto", "off"])),
            "memory": draw(st.sampled_from(["auto", "auto", "stream", "resident"])),
            "model": {"context_length": draw(st.sampled_from([128, 1_024, 16_384]))},
        }
    )


def machine(gpu_gb: float, host_gb: float) -> Hardware:
    gpus = (Gpu(name="H100", memory_bytes=int(gpu_gb * 1e9), flops=989e12),) if gpu_gb else ()
    return Hardware(host_memory_bytes=int(host_gb * 1e9), cpu_cores=16, gpus=gpus)


MEMORY = st.sampled_from([8, 12, 16, 24, 40, 80, 140, 300])


def try_plan(config: TrainConfig, hardware: Hardware, shape: DecoderShape) -> Plan | None:
    try:
        return plan(config, hardware, shape=shape)
    except DoesNotFit:
        return None


def last_resorts(placement: Placement | None) -> tuple[bool, bool]:
    assert placement is not None
    return placement.share_gradients, placement.embedding.state != "device"


@SLOW
@given(shapes(), configs(), MEMORY, MEMORY, st.sampled_from([0, 0.3, 7, 60]), st.sampled_from([0, 2, 90]))
def test_more_memory_never_gives_a_slower_plan(
    shape: DecoderShape, config: TrainConfig, gpu: float, host: float, more_gpu: float, more_host: float
) -> None:
    less = try_plan(config, machine(gpu, host), shape)
    assume(less is not None)
    assert less is not None
    more = try_plan(config, machine(gpu + more_gpu, host + more_host), shape)
    assert more is not None, "what fits in less memory fits in more"
    # A last resort is given up as soon as it is not needed, even where it would be a little faster.
    if last_resorts(less.placement) == last_resorts(more.placement):
        assert more.step_seconds <= less.step_seconds * (1 + 1e-9)


@SLOW
@given(shapes(), configs(), st.sampled_from([0, 8, 12, 24, 80, 140]), MEMORY)
def test_no_plan_needs_more_than_there_is(
    shape: DecoderShape, config: TrainConfig, gpu: float, host: float
) -> None:
    hardware = machine(gpu, host)
    answer = try_plan(config, hardware, shape)
    assume(answer is not None)
    assert answer is not None
    assert answer.host is not None
    assert answer.host.total <= answer.host.limit_bytes < hardware.host_memory_bytes
    if hardware.gpus:
        assert answer.gpu is not None
        assert answer.gpu.total <= answer.gpu.limit_bytes < hardware.gpus[0].memory_bytes
    assert answer.memory_total_bytes == answer.memory.total <= answer.memory_limit_bytes


@SLOW
@given(shapes(), configs(), st.sampled_from([0, 8, 12, 24]), st.sampled_from([4, 16, 64]))
def test_what_a_refusal_suggests_does_fit(
    shape: DecoderShape, config: TrainConfig, gpu: float, host: float
) -> None:
    hardware = machine(gpu, host)
    assume(try_plan(config, hardware, shape) is None)
    with pytest.raises(DoesNotFit) as caught:
        plan(config, hardware, shape=shape)
    sentence, nearest = str(caught.value), caught.value.nearest
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert ("would fit" in sentence) == (nearest is not None)
    if nearest is not None:
        plan(nearest, hardware, shape=shape)


@SLOW
@given(shapes(), configs(), st.sampled_from([0, 24, 80, 140]), MEMORY)
def test_the_search_judges_the_placement_that_it_returns(
    shape: DecoderShape, config: TrainConfig, gpu: float, host: float
) -> None:
    asked = PlanRequest.of(config, machine(gpu, host), shape)
    found = search(asked.timed, asked.limits, config.memory.mode)
    assume(found is not None)
    assert found is not None
    judged = residency(asked.timed, found)
    built = residency_of(placement(asked.timed.work, found), asked.timed.work, asked.timed.recompute)
    assert built._replace(recompute_seconds=0.0, offload=judged.offload) == judged._replace(
        recompute_seconds=0.0
    )
    assert abs(built.recompute_seconds - judged.recompute_seconds) < 1e-9
