"""The search finds what judging every candidate finds, only sooner."""

import random
from collections.abc import Iterator

import pytest

from gpubloom.plan import Gpu, Hardware, TrainConfig
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.request import PlanRequest
from gpubloom.plan.search import _LINKED_SIXTEENTHS, _WORTH_LINKING, Candidate, _Search, residency, search
from gpubloom.plan.timing import step_seconds


def machines_and_runs(seed: int) -> PlanRequest:
    """Runs whose layers cannot all stay on the GPU, on machines whose parts differ in speed."""
    draw = random.Random(seed)
    heads = draw.choice([8, 16])
    shape = decoder_shape(
        {
            "model_type": "llama",
            "vocab_size": 32_000,
            "hidden_size": heads * 128,
            "num_attention_heads": heads,
            "num_hidden_layers": draw.choice([6, 10, 12]),
            "intermediate_size": draw.randint(2_000, 16_000),
        }
    )
    config = TrainConfig.model_validate(
        {
            "batch_size": draw.choice([4, 8]),
            "precision": draw.choice(["auto", "fp16"]),
            "memory": draw.choice(["auto", "stream"]),
            "model": {"context_length": 1_024},
        }
    )
    gpu = Gpu(name="a GPU", memory_bytes=int(draw.uniform(8e9, 40e9)), flops=draw.choice([300e12, 989e12]))
    machine = Hardware(host_memory_bytes=500 * 10**9, cpu_cores=draw.choice([4, 16, 64]), gpus=(gpu,))
    return PlanRequest.of(config, machine, shape)


def candidates(asked: PlanRequest, mode: str) -> Iterator[Candidate]:
    """All that the search may choose from, in no order."""
    timed, count = asked.timed, asked.timed.work.count
    every = _Search(timed, asked.limits, mode, Candidate(0))
    for common in every._settings():
        for resident in every._residents(common):
            if (common.cast and resident == 0) or not every._fits(common._replace(resident=resident)):
                continue
            left = count - resident
            for linked in {0, *(left * part // 16 for part in _LINKED_SIXTEENTHS)}:
                for kept in range(count + 1):
                    at = common._replace(resident=resident, linked=linked, kept=kept)
                    if not every._fits(at):
                        continue
                    yield at
                    if mode == "auto":
                        yield every._filled(at, max(0, left - kept))


@pytest.mark.parametrize("seed", range(16))
def test_no_candidate_is_faster_than_the_one_that_is_found(seed: int) -> None:
    """By no more than what the search says that it overlooks."""
    asked = machines_and_runs(seed)
    mode = asked.config.memory.mode
    found = search(asked.timed, asked.limits, mode)
    assert found is not None
    seconds = step_seconds(asked.timed, residency(asked.timed, found))
    fastest = min(step_seconds(asked.timed, residency(asked.timed, at)) for at in candidates(asked, mode))
    assert seconds <= fastest * (1 + _WORTH_LINKING)
