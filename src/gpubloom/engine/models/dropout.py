"""Dropout whose mask is a function of where and when, and of nothing else.

A mask follows from seed, step, layer, target and position in the step's batch by integer arithmetic. A layer
that is computed again, moved, or met after a resume sees the same mask, however many processes share the
batch, and the generators of torch are never asked. A draw is a small tensor that `layer` gets as its last
table: steps differ in values, not in shapes, so nothing is compiled twice.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_RANGE = 1 << 31
# Sixteen bytes each: kernels want their inputs aligned.
_DRAW = 4
# Fields of heads that no language model uses.
_OTHER_HEADS = ("classifier", "summary")


@dataclass(frozen=True)
class Dropout:
    """The share of inputs that is left out in a training step."""

    rate: float
    seed: int

    def draws(self, step: int, layers: int, begins: Sequence[int], *, training: bool) -> Tensor:
        """One draw for each layer and micro-batch; `begins` says where in the step's batch each begins.

        When nothing is trained, nothing is left out.
        """
        threshold = int(self.rate * _RANGE) if training else 0
        rows = [
            [self._key(step, layer), threshold, begin] + [0] * (_DRAW - 3)
            for layer in range(layers)
            for begin in begins
        ]
        return torch.tensor(rows, dtype=torch.int32).view(layers, len(begins), _DRAW)

    def _key(self, *counters: int) -> int:
        text = " ".join(map(str, (self.seed, *counters))).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big", signed=True)


def unused_dropouts(settings: Mapping[str, Any]) -> list[str]:
    """What to say of the dropouts in a config.json: layers run without them."""
    return [
        f"The model config sets {name} to {value}, but training runs without this dropout."
        for name, value in sorted(settings.items())
        if ("dropout" in name or name.endswith("_pdrop"))
        and not name.startswith(_OTHER_HEADS)
        and isinstance(value, float)
        and value > 0
    ]


def salt_of(target: str) -> int:
    """A number for a linear module, by its path within the layer."""
    return zlib.crc32(target.encode()) - _RANGE


def leave_out(x: Tensor, draw: Tensor, salt: int) -> Tensor:
    """x with the draw's share of its values set to zero, and the others enlarged to make up for it."""
    rows = x.shape[:-1].numel()
    key = draw[0] ^ salt
    counter_N = torch.arange(rows, dtype=torch.int32, device=x.device) + draw[2]
    row_N1 = _mix(counter_N ^ key)[:, None]
    column_D = _mix(torch.arange(x.shape[-1], dtype=torch.int32, device=x.device) ^ _mix(key))
    kept = (_mix(row_N1 ^ column_D) & (_RANGE - 1)) >= draw[1]
    scale = 1 / (1 - draw[1].float() / _RANGE)
    return torch.where(kept.view(x.shape), x * scale, 0.0).to(x.dtype)


def _mix(number: Tensor) -> Tensor:
    """Every bit of the result depends on every bit of the number; products wrap around at 32 bits."""
    number = (number ^ ((number >> 16) & 0xFFFF)) * 0x7FEB352D
    number = (number ^ ((number >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return number ^ ((number >> 16) & 0xFFFF)
