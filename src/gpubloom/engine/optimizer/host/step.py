"""The numbers of one AdamW update, and the constants that every element shares."""

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class AdamWStep:
    """`updates` is t, counted from 1: the number of this update, not of those before it."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    updates: int


class Constants(NamedTuple):
    """In double; kernels round each to FP32 once. The order is that of `struct constants` in adamw.c."""

    scale: float
    beta1: float
    rest1: float
    beta2: float
    rest2: float
    decay: float
    rate: float
    root2: float
    eps: float

    @classmethod
    def of(cls, step: AdamWStep, scale: float) -> "Constants":
        if step.updates < 1:
            raise ValueError(f"AdamW counts its updates from 1, but was given update {step.updates}.")
        return cls(
            scale=scale,
            beta1=step.beta1,
            rest1=1 - step.beta1,
            beta2=step.beta2,
            rest2=1 - step.beta2,
            decay=1 - step.lr * step.weight_decay,
            rate=step.lr / (1 - step.beta1**step.updates),
            root2=math.sqrt(1 - step.beta2**step.updates),
            eps=step.eps,
        )
