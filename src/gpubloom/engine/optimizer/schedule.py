"""The learning rate of a step: linear warm-up, then half a cosine. A pure function of step and length."""

import math
from dataclasses import dataclass

from gpubloom.plan import ScheduleConfig


@dataclass(frozen=True)
class Schedule:
    """Scales a peak learning rate; the peak itself may be changed while training."""

    warmup_steps: int
    total_steps: int
    final_fraction: float

    @classmethod
    def create(cls, config: ScheduleConfig, total_steps: int) -> "Schedule":
        warmup = config.warmup_steps
        if warmup is None:
            warmup = round(config.warmup_fraction * total_steps)
        return cls(min(warmup, total_steps), total_steps, config.final_fraction)

    def learning_rate(self, peak: float, step: int) -> float:
        """For step 1, 2, … total_steps. The last step has the final fraction."""
        if step <= self.warmup_steps:
            return peak * step / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return peak * (self.final_fraction + (1 - self.final_fraction) * cosine)
