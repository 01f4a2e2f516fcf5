"""Arrays to update, drawn from a seed, and both kernels to update them with."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.engine.optimizer.host.adamw import Kind, TorchAdamW

LR, BETA1, BETA2, EPS = 1e-3, 0.9, 0.999, 1e-8


def step(updates: int, weight_decay: float = 0.1, lr: float = LR) -> AdamWStep:
    return AdamWStep(lr, BETA1, BETA2, EPS, weight_decay, updates)


def torch_kernel(threads: int) -> HostAdamW:
    """What a machine without a C compiler gets."""
    adamw = HostAdamW(threads)
    adamw._kernel = TorchAdamW()
    return adamw


@dataclass
class State:
    """`shift` moves every array off its natural alignment by so many elements."""

    master: Tensor
    first: Tensor
    second: Tensor
    copy: Tensor | None
    gradient_dtype: torch.dtype

    @classmethod
    def draw(cls, length: int, kind: Kind, *, shift: int = 0) -> "State":
        def room(dtype: torch.dtype) -> Tensor:
            return torch.zeros(length + shift, dtype=dtype)[shift:]

        master = room(torch.float32).copy_(torch.randn(length, generator=torch.Generator().manual_seed(7)))
        copy = None if kind[1] is None else room(kind[1])
        return cls(master, room(torch.float32), room(torch.float32), copy, kind[0])

    def gradient(self, updates: int) -> Tensor:
        drawn = torch.randn(len(self.master), generator=torch.Generator().manual_seed(updates))
        return (drawn * 0.1).to(self.gradient_dtype)

    def train(
        self, adamw: HostAdamW, updates: int, *, weight_decay: float = 0.1, scale: float = 0.7
    ) -> "State":
        for number in range(1, updates + 1):
            adamw.update(
                self.master,
                self.first,
                self.second,
                self.gradient(number),
                self.copy,
                step(number, weight_decay),
                scale,
            )
        return self

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.master, self.first, self.second, self.copy) if tensor is not None]


def same_bits(one: State, other: State) -> bool:
    """NaN payloads aside: what a NaN's fraction says is nobody's business."""
    return all(
        bool(((left == right) & (left.signbit() == right.signbit()) | (left.isnan() & right.isnan())).all())
        for left, right in zip(one.tensors(), other.tensors(), strict=True)
    )
