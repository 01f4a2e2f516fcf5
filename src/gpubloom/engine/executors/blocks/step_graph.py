"""StepGraph: the kernels of a step, recorded once as a CUDA graph and started together from then on.

Python needs longer to start the kernels of a small model than the GPU needs to run them. A recorded step is
one call, compiled or not. Everything that a recording reads or writes stays where it is: weights, states and
gradients are flat buffers on the device, and the inputs of a step are copied into those of the recording.
What changes from step to step is data there too: tokens, dropout draws, the numbers of the update. Other
settings are part of the recording, so a change of them drops it.

The first steps are not recorded: they compile, and allocate what lasts. Evaluations never are. If recording
fails, the run continues without it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine.executors.step import StepInputs

# The first compiles the layers, the second what an update needs.
WARM_UP = 2


class StepGraph:
    """The recording of one executor's step, in two parts: forward and backward pass, and update."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._inputs: StepInputs | None = None
        self._steps = 0
        self._parts: dict[str, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pool: Any = None
        self._works = True

    @property
    def is_used(self) -> bool:
        """Whether the forward and backward pass of the present step was a recording."""
        return "forward and backward pass" in self._parts

    def forget(self) -> None:
        """Drop the recording. The next steps are not recorded: they may compile."""
        self._steps = 0
        if self._parts:
            self._parts.clear()
            self._pool = None
            # Its memory would otherwise be reserved beside that of the steps that are not recorded.
            torch.cuda.empty_cache()

    def forward_backward(self, inputs: StepInputs, run: Callable[[StepInputs], Tensor]) -> Tensor:
        if self._inputs is None or not self._inputs.is_like(inputs):
            self._inputs = inputs
            self.forget()
        self._steps += 1
        if not self._works or self._steps <= WARM_UP:
            return run(inputs)
        kept = self._inputs
        kept.load(inputs)
        return self._start("forward and backward pass", lambda: run(kept))

    def update(self, order: Callable[[], Tensor]) -> Tensor:
        """After a recorded forward and backward pass."""
        return self._start("update", order)

    def _start(self, part: str, work: Callable[[], Tensor]) -> Tensor:
        if part not in self._parts and not self._record(part, work):
            return work()
        graph, result = self._parts[part]
        graph.replay()
        # The next start overwrites it.
        return result.clone()

    def _record(self, part: str, work: Callable[[], Tensor]) -> bool:
        """Records without running. Whether it worked."""
        # Both parts use the same memory: they never run at the same time.
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads read metrics and pin batches meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = work()
        except RuntimeError as problem:
            self._works = False
            self.forget()
            reason = str(problem).strip().splitlines()[0]
            self._say(f"the {part} is not recorded as a CUDA graph and may run slower: {reason}")
            return False
        self._parts[part] = (graph, result)
        return True
