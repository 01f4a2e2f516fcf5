"""When a step is recorded. What a recording computes is tested on a GPU (test_gpu.py)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.step_graph import WARM_UP, StepGraph
from gpubloom.engine.executors.step import StepInputs


class _Replay:
    """Stands for a CUDA graph."""

    def replay(self) -> None:
        pass


class _RecordsWithoutGpu(StepGraph):
    """Notes at which step something is recorded."""

    def __init__(self) -> None:
        super().__init__(print)
        self.steps: list[str] = []

    def _record(self, part: str, work: Callable[[], Tensor]) -> bool:
        self._parts[part] = (_Replay(), work())  # type: ignore[assignment]
        self.steps[-1] = "recorded"
        return True

    def step(self, rows: int = 2) -> None:
        self.steps.append("replayed")

        def run(inputs: StepInputs) -> Tensor:
            self.steps[-1] = "plain"
            return torch.zeros(())

        tokens = [torch.zeros(rows, 4, dtype=torch.int64)]
        self.forward_backward(StepInputs(tokens, tokens, [()], None), run)


@pytest.fixture
def graph() -> _RecordsWithoutGpu:
    return _RecordsWithoutGpu()


def _recorded_after_warm_up(graph: _RecordsWithoutGpu) -> bool:
    return graph.steps == ["plain"] * WARM_UP + ["recorded", "replayed"]


def test_a_step_is_recorded_after_those_that_compile(graph: _RecordsWithoutGpu) -> None:
    for _ in range(WARM_UP + 2):
        graph.step()
    assert _recorded_after_warm_up(graph)


@pytest.mark.parametrize("changed", ["settings", "shapes"])
def test_after_a_change_steps_may_compile_again_before_one_is_recorded(
    graph: _RecordsWithoutGpu, changed: str
) -> None:
    """A program that is compiled while a step is being recorded ends the recording for good."""
    for _ in range(WARM_UP + 2):
        graph.step()
    graph.steps.clear()
    if changed == "settings":
        graph.forget()
    for _ in range(WARM_UP + 2):
        graph.step(rows=2 if changed == "settings" else 3)
    assert _recorded_after_warm_up(graph)
