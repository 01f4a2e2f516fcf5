"""The values that 4-bit and 8-bit codes stand for, as QLoRA defines them. bitsandbytes has the same tables.

NF4: the quantiles of a normal distribution, scaled to [-1, 1], with an exact zero. The 8-bit code of the
second level is "dynamic": decades below one, each split more finely than the one below it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
_DECADES = 7


@dataclass(frozen=True)
class CodeBooks:
    """`bucketize` with bounds, where one code ends and the next begins, finds the nearest value's code."""

    pairs: Tensor
    """(256, 2): the values that a byte of two 4-bit codes stands for, the one in its upper half first."""
    nf4_bounds: Tensor
    dynamic: Tensor
    dynamic_bounds: Tensor


def code_books(device: torch.device) -> CodeBooks:
    """The tables on a device. They are kept there: to bring them anew each time would wait for the device."""
    if device not in _kept:
        nf4, dynamic = torch.tensor(NF4), dynamic_values()
        pairs = torch.stack([nf4.repeat_interleave(16), nf4.repeat(16)], dim=1)
        tables = (pairs, _midpoints(nf4), dynamic, _midpoints(dynamic))
        _kept[device] = CodeBooks(*(table.to(device) for table in tables))
    return _kept[device]


_kept: dict[torch.device, CodeBooks] = {}


def dynamic_values() -> Tensor:
    """256 values, sorted. Decade d, from 0.1 to 1 times 10^(d-6), holds the middles of 2^d equal parts."""
    positive = [
        _middles(2**decade) * np.float32(10.0 ** (decade - _DECADES + 1)) for decade in range(_DECADES)
    ]
    one_side = np.concatenate(positive)
    both = np.concatenate([one_side, -one_side, np.array([0.0, 1.0], dtype=np.float32)])
    return torch.from_numpy(np.sort(both))


def _midpoints(values: Tensor) -> Tensor:
    return (values[:-1] + values[1:]) / 2


def _middles(parts: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Middles of equal parts of [0.1, 1] in FP32, with the roundings that the published table has."""
    begin, end = np.float32(0.1), np.float32(1)
    width = np.float64((end - begin) / np.float32(parts))
    steps = np.arange(parts + 1)
    lower = np.float64(begin) + width * steps
    upper = np.float64(end) - width * (parts - steps)
    edges = np.where(steps < (parts + 1) // 2, lower, upper).astype(np.float32)
    return (edges[:-1] + edges[1:]) / np.float32(2)
