"""Layout: the tensors of a block end to end in one flat buffer; binding them copies nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpubloom.engine.models.blocks import TensorSpec
from gpubloom.plan.decoder import ALIGNMENT


@dataclass(frozen=True)
class Layout:
    """Matrices, which decay, come first, then vectors. Gaps are zero and stay so."""

    tensors: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    decayed: int
    length: int

    @classmethod
    def of(cls, tensors: Sequence[TensorSpec]) -> "Layout":
        matrices = [tensor for tensor in tensors if len(tensor.shape) > 1]
        vectors = [tensor for tensor in tensors if len(tensor.shape) <= 1]
        offsets, end, decayed = [], 0, 0
        for number, tensor in enumerate((*matrices, *vectors), start=1):
            offsets.append(end)
            end += -(-tensor.length // ALIGNMENT) * ALIGNMENT
            if number == len(matrices):
                decayed = end
        return cls((*matrices, *vectors), tuple(offsets), decayed, end)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    def views(self, flat: Tensor) -> list[Tensor]:
        """The block's tensors as views of a flat buffer, in the order of `names`."""
        return [
            flat[offset : offset + tensor.length].view(tensor.shape)
            for tensor, offset in zip(self.tensors, self.offsets, strict=True)
        ]

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.names, self.views(flat), strict=True))

    @torch.no_grad()
    def write(self, flat: Tensor, tensors: Sequence[Tensor]) -> None:
        """Copies tensors, in the order of `names`, into their places."""
        torch._foreach_copy_(self.views(flat), list(tensors), non_blocking=True)

    @torch.no_grad()
    def add(self, flat: Tensor, tensors: Sequence[Tensor]) -> None:
        for view, tensor in zip(self.views(flat), tensors, strict=True):
            view.add_(tensor)
