"""Small steps: what starting their kernels costs, and when they are recorded."""

from typing import Any

import pytest

from gpubloom.plan import Plan
from gpubloom.plan.costs import LAUNCH_GRAPH_SECONDS
from tests.plan.machines import H200, TWO_3060, planned


def small(machine: Any = H200, **fields: Any) -> Plan:
    return planned("0.5b", machine, **{"batch_size": 4, **fields})


def is_recorded(answer: Plan) -> bool:
    assert answer.placement is not None
    return answer.placement.cuda_graph


def test_a_small_step_on_a_gpu_is_recorded_and_waits_for_no_launch() -> None:
    answer = small()
    assert is_recorded(answer)
    assert answer.limited_by == "the GPU"
    assert answer.step_seconds > LAUNCH_GRAPH_SECONDS


@pytest.mark.parametrize(
    "fields", [{"precision": "fp16"}, {"memory": "stream"}, {"processes": 2, "batch_size": 2}]
)
def test_a_step_that_does_not_run_on_one_gpu_alone_is_not_recorded(fields: dict[str, Any]) -> None:
    answer = small(TWO_3060 if "processes" in fields else H200, **fields)
    assert not is_recorded(answer)


def test_a_step_that_is_not_recorded_waits_for_its_launches() -> None:
    answer = small(precision="fp16", batch_size=1)
    assert answer.limited_by == "kernel launches"
    assert answer.phases[-1].name == "launches"
    assert answer.step_seconds == pytest.approx(sum(phase.seconds for phase in answer.phases))


def test_a_large_step_is_not_recorded() -> None:
    assert not is_recorded(planned("7b", H200, batch_size=8))


def test_a_recording_that_does_not_fit_is_left_out() -> None:
    answer = small(method="lora")
    assert is_recorded(answer)
    assert answer.gpu is not None
    tight = small(method="lora", memory={"gpu_budget_gb": answer.gpu.total / 1e9 - 0.1})
    assert tight.gpu is not None
    assert not is_recorded(tight)
    assert tight.gpu.total <= tight.gpu.limit_bytes


def test_with_room_the_loss_takes_more_tokens_at_once_than_frozen_weights_need() -> None:
    chunks = []
    for method in ("full", "lora"):
        answer = planned("0.5b", H200, batch_size=16, method=method)
        assert answer.placement is not None
        chunks.append(answer.placement.loss_chunk_tokens)
    assert chunks[0] > chunks[1] == 2_048
