"""From which step on a run uses compiled layers: compiling takes as long as many steps of a small model.

Steps can run uncompiled while another process compiles. A step is chosen and not a time, before the first
step, and kept in plan.json, so that every resume switches where the first attempt would have.
"""

import math
from dataclasses import dataclass

from gpubloom.plan import costs
from gpubloom.plan.config import TrainConfig


def compiled_from_step(config: TrainConfig, step_seconds: float, *, on_gpu: bool) -> int | None:
    """On a CPU, where only `compile: on` compiles; None: never, or on a GPU, where the run decides."""
    in_background = config.compile == "on" and config.backend == "engine" and config.method != "qlora"
    if on_gpu or not in_background:
        return None
    return 1 + max(1, math.ceil(costs.CPU_COMPILE_SECONDS / step_seconds))


@dataclass(frozen=True)
class CompileChoice:
    """What a run on a GPU can do. Seconds of a step uncompiled are None where that does not fit."""

    steps: int
    compiled_seconds: float
    eager_seconds: float | None
    # Whether the same placement serves both, so that a run can switch.
    can_switch: bool
    # Whether a run on this machine has compiled these programs before.
    is_kept: bool
    must_compile: bool

    def first_step(self) -> int:
        """The first compiled step of the fastest way; 0: the run is over before compiling would pay."""
        starting = costs.KEPT_PROGRAMS_SECONDS if self.is_kept else costs.GPU_COMPILE_SECONDS
        seconds = {1: starting + self.steps * self.compiled_seconds}
        if self.eager_seconds is not None:
            if not self.must_compile:
                seconds[0] = self.steps * self.eager_seconds
            before = math.ceil(costs.GPU_COMPILE_ASIDE_SECONDS / self.eager_seconds)
            if self.can_switch and not self.is_kept and before < self.steps:
                after = (self.steps - before) * self.compiled_seconds
                seconds[1 + before] = before * self.eager_seconds + costs.KEPT_PROGRAMS_SECONDS + after
                # The first loss is there at once, which is worth something too.
                seconds[1] += costs.WORTH_A_QUICK_START_SECONDS
        return min(seconds, key=lambda step: seconds[step])
