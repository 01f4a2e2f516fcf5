"""What an update works on, checked, and how it is split among threads."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Kind = tuple[torch.dtype, torch.dtype | None]

# Gradient and compute copy. Without a copy, weights are computed with the master itself.
KINDS: tuple[Kind, ...] = (
    (torch.float32, None),
    (torch.bfloat16, None),
    (torch.float16, None),
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.float32, torch.float16),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16),
)

# Large enough that starting a range costs nothing, small enough that threads end together.
_LARGEST = 1 << 20
_SMALLEST = 1 << 15
# A cache line of the narrowest type, and of all others too.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Arrays:
    """Flat, contiguous, equally long, on the CPU, none the same memory as another.

    But a copy may overwrite the gradient, if it is of the same type.
    """

    master: Tensor
    first: Tensor
    second: Tensor
    gradient: Tensor
    copy: Tensor | None

    def __post_init__(self) -> None:
        given = [tensor for tensor in self.tensors() if tensor is not None]
        for tensor in given:
            if tensor.device.type != "cpu" or tensor.ndim != 1 or not tensor.is_contiguous():
                raise ValueError("The host AdamW takes flat, contiguous tensors in CPU memory only.")
        if len({len(tensor) for tensor in given}) != 1:
            raise ValueError(f"The host AdamW takes equal lengths, not {[len(tensor) for tensor in given]}.")
        if {self.master.dtype, self.first.dtype, self.second.dtype} != {torch.float32}:
            raise ValueError("The host AdamW takes FP32 masters and moments only.")
        if self.kind not in KINDS:
            raise ValueError(f"The host AdamW has no kernel for {kind_name(self.kind)}: gradient, copy.")
        pointers = [self.master.data_ptr(), self.first.data_ptr(), self.second.data_ptr()]
        pointers.append(self.gradient.data_ptr())
        if self.copy is not None and not self._copy_overwrites_gradient(self.copy):
            pointers.append(self.copy.data_ptr())
        if len(self.master) > 0 and len(set(pointers)) != len(pointers):
            raise ValueError(
                "The host AdamW was given the same memory twice; a master needs no copy of itself."
            )

    def _copy_overwrites_gradient(self, copy: Tensor) -> bool:
        return copy.dtype == self.gradient.dtype and copy.data_ptr() == self.gradient.data_ptr()

    @property
    def kind(self) -> Kind:
        return self.gradient.dtype, None if self.copy is None else self.copy.dtype

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.master, self.first, self.second, self.gradient, self.copy


def kind_name(kind: Kind) -> str:
    return "_".join(str(dtype).removeprefix("torch.") for dtype in kind if dtype is not None)


def split(length: int, threads: int) -> Iterator[tuple[int, int]]:
    """Equal ranges, in whole rounds of all threads, that begin on cache lines."""
    rounds = -(-length // (threads * _LARGEST))
    size = max(_SMALLEST, -(-length // max(1, threads * rounds)))
    size = -(-size // _ALIGNMENT) * _ALIGNMENT
    for start in range(0, length, size):
        yield start, min(start + size, length)
