"""NF4, the 4-bit format of QLoRA: 64 weights share an FP32 scale (absmax), and 256 scales share one again.

A code stands for a quantile of the normal distribution, scaled to [-1, 1], with an exact zero. The 8-bit code
of the second level is "dynamic": decades below one, each split more finely than the one below it. Codes,
scales and decoded values are those of bitsandbytes; `tests/engine/test_nf4.py` states where it differs.

`Nf4` is one tensor. `FlatNf4` is the layout of many tensors in one buffer that is copied to the GPU whole and
decoded in one pass; the buffer holds its own tables. Decoding is two look-ups and two products, all
pointwise: torch.compile makes one kernel of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.errors import InputError

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

BLOCK = 64
GROUP = 256
_BLOCK_BYTES = BLOCK // 2
# How many weights are worked on at a time outside compiled code: bounds what scratch memory it takes.
_PIECE = 1 << 22
# Smaller scales are indistinguishable from zero, and their reciprocal would not be finite.
_SMALLEST = 1e-38
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


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


@dataclass(frozen=True)
class Nf4:
    """One tensor. With compressed scales, `absmax` is uint8 and `scales` and `offset` are given."""

    packed: Tensor
    """uint8, two codes a byte, the first in the upper half; filled up with zeros to whole blocks."""
    absmax: Tensor
    """One for each block: FP32, or 8-bit codes."""
    scales: Tensor | None
    """FP32, one for each 256 of `absmax`."""
    offset: Tensor | None
    """FP32, the mean that was taken off before `absmax` was coded."""
    shape: torch.Size
    dtype: torch.dtype


def quantize(weight: Tensor, *, compress_scales: bool = True) -> Nf4:
    """Raises `ValueError` for weights that are not finite numbers."""
    if weight.dtype not in _DTYPES:
        raise InputError(
            "unsupported_dtype", f"NF4 supports weights in fp32, bf16 or fp16, not in {weight.dtype}."
        )
    if weight.numel() == 0:
        raise InputError(
            "invalid_argument",
            f"NF4 needs at least one weight, but this tensor has the shape {tuple(weight.shape)}.",
        )
    flat = weight.detach().reshape(-1)
    blocks = _blocks(len(flat))
    packed = torch.empty(blocks * _BLOCK_BYTES, dtype=torch.uint8, device=weight.device)
    absmax = torch.empty(blocks, device=weight.device)
    tables = code_books(weight.device)
    for start in range(0, blocks, _PIECE // BLOCK):
        here = slice(start, min(start + _PIECE // BLOCK, blocks))
        values = flat[here.start * BLOCK : here.stop * BLOCK].float()
        codes, absmax[here] = _encode(values, BLOCK, tables.nf4_bounds)
        packed[here.start * _BLOCK_BYTES : here.stop * _BLOCK_BYTES] = codes[0::2] << 4 | codes[1::2]
    if not absmax.isfinite().all():
        raise InputError("weights_not_finite", "NF4 cannot store these weights: some are NaN or infinite.")
    if not compress_scales:
        return Nf4(packed, absmax, None, None, weight.shape, weight.dtype)
    offset = absmax.mean()
    if not offset.isfinite():
        raise InputError(
            "invalid_argument",
            f"NF4 cannot compress the scales of these weights: the largest is {absmax.max():.3g}.",
        )
    codes, scales = _encode(absmax - offset, GROUP, tables.dynamic_bounds)
    return Nf4(packed, codes[:blocks], scales, offset, weight.shape, weight.dtype)


def dequantize(nf4: Nf4, out: Tensor | None = None) -> Tensor:
    """The weights in their own shape and precision, or written into `out` in its shape and precision."""
    device = nf4.packed.device
    tables = code_books(device)
    if out is None:
        out = torch.empty(nf4.shape, dtype=nf4.dtype, device=device)
    length = nf4.shape.numel()
    if out.numel() != length or not out.is_contiguous():
        raise InputError(
            "invalid_argument",
            f"{length:,} weights need a contiguous output of the same size, not of shape {tuple(out.shape)}.",
        )
    _decode(nf4.packed, dequantize_scales(nf4), tables.pairs, out.view(-1))
    return out


def dequantize_scales(nf4: Nf4) -> Tensor:
    """The FP32 scale (absmax) of each block."""
    if nf4.scales is None or nf4.offset is None:
        return nf4.absmax
    group = torch.arange(len(nf4.absmax), dtype=torch.int32, device=nf4.absmax.device) // GROUP
    tables = code_books(nf4.absmax.device)
    return _decode_scales(nf4.absmax, nf4.scales, group, nf4.offset, tables.dynamic)


@dataclass(frozen=True)
class FlatNf4:
    """Many tensors with compressed scales in one uint8 buffer, each part whole before the next:

    codes | 8-bit absmax | second-level scales | offsets | first block and first group of each tensor | tables

    Decoded, every tensor begins at a multiple of 64 (`starts`), and `elements` is the length of them all.
    """

    lengths: tuple[int, ...]

    @classmethod
    def layout(cls, lengths: Sequence[int]) -> "FlatNf4":
        if not lengths or min(lengths) < 1:
            raise InputError(
                "invalid_argument",
                f"A flat NF4 buffer needs tensors with at least one weight each, not with {list(lengths)}.",
            )
        return cls(tuple(lengths))

    @property
    def blocks(self) -> int:
        return sum(map(_blocks, self.lengths))

    @property
    def elements(self) -> int:
        return self.blocks * BLOCK

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple(block * BLOCK for block in _begins([_blocks(length) for length in self.lengths]))

    @property
    def total_bytes(self) -> int:
        return self._edges()[-1]

    def pack(self, tensors: Sequence[Nf4], buffer: Tensor) -> None:
        """Writes tensors, in the order of `lengths`, into a buffer of `total_bytes`."""
        if [tensor.shape.numel() for tensor in tensors] != list(self.lengths):
            raise InputError("invalid_argument", "The lengths of these tensors do not match the layout.")
        self._check(buffer)
        scales = [tensor.scales for tensor in tensors if tensor.scales is not None]
        offsets = [tensor.offset for tensor in tensors if tensor.offset is not None]
        if len(scales) != len(tensors) or len(offsets) != len(tensors):
            raise InputError(
                "invalid_argument", "A flat NF4 buffer supports only tensors with compressed scales."
            )
        parts = self.parts(buffer)
        torch.cat([tensor.packed for tensor in tensors], out=parts.codes)
        torch.cat([tensor.absmax for tensor in tensors], out=parts.absmax)
        torch.cat(scales, out=parts.scales)
        torch.stack(offsets, out=parts.offsets)
        blocks = [_blocks(length) for length in self.lengths]
        parts.first_blocks.copy_(torch.tensor(_begins(blocks), dtype=torch.int32))
        parts.first_groups.copy_(
            torch.tensor(_begins([_groups(count) for count in blocks]), dtype=torch.int32)
        )
        tables = code_books(buffer.device)
        parts.pairs.copy_(tables.pairs)
        parts.dynamic.copy_(tables.dynamic)

    def parts(self, buffer: Tensor) -> "FlatParts":
        """Views of a buffer."""
        self._check(buffer)
        edges = self._edges()
        cut = [buffer[begin:end] for begin, end in pairwise(edges)]
        return FlatParts(
            codes=cut[0],
            absmax=cut[1][: self.blocks],
            scales=cut[2].view(torch.float32),
            offsets=cut[3].view(torch.float32),
            first_blocks=cut[4].view(torch.int32),
            first_groups=cut[5].view(torch.int32),
            pairs=cut[6].view(torch.float32).view(256, 2),
            dynamic=cut[7].view(torch.float32),
        )

    def _edges(self) -> list[int]:
        blocks = [_blocks(length) for length in self.lengths]
        groups = sum(map(_groups, blocks))
        sizes = [
            self.blocks * _BLOCK_BYTES,
            # What follows is read as 4-byte numbers.
            -(-self.blocks // 4) * 4,
            4 * groups,
            *[4 * len(self.lengths)] * 3,
            4 * 2 * 256,
            4 * 256,
        ]
        return list(accumulate(sizes, initial=0))

    def _check(self, buffer: Tensor) -> None:
        if buffer.dtype != torch.uint8 or buffer.ndim != 1 or len(buffer) != self.total_bytes:
            raise InputError(
                "invalid_argument",
                f"This layout needs a flat uint8 buffer of {self.total_bytes:,} bytes, "
                f"not {buffer.dtype} of shape {tuple(buffer.shape)}.",
            )


@dataclass(frozen=True)
class FlatParts:
    codes: Tensor
    absmax: Tensor
    scales: Tensor
    offsets: Tensor
    first_blocks: Tensor
    first_groups: Tensor
    pairs: Tensor
    dynamic: Tensor


def dequantize_flat(buffer: Tensor, out: Tensor, lengths: Sequence[int]) -> None:
    """Decodes a whole buffer into a flat tensor of `FlatNf4.elements`, fillings between tensors included."""
    layout = FlatNf4.layout(lengths)
    if out.ndim != 1 or len(out) != layout.elements:
        raise InputError(
            "invalid_argument",
            f"This layout decodes into {layout.elements:,} weights, not into a tensor of shape "
            f"{tuple(out.shape)}.",
        )
    parts = layout.parts(buffer)
    block = torch.arange(layout.blocks, dtype=torch.int32, device=buffer.device)
    tensor = torch.bucketize(block, parts.first_blocks, right=True, out_int32=True) - 1
    group = parts.first_groups[tensor] + (block - parts.first_blocks[tensor]) // GROUP
    absmax = _decode_scales(parts.absmax, parts.scales, group, parts.offsets[tensor], parts.dynamic)
    _decode(parts.codes, absmax, parts.pairs, out)


def _decode_scales(codes: Tensor, scales: Tensor, group: Tensor, offset: Tensor, values: Tensor) -> Tensor:
    return values[codes.int()] * scales[group] + offset


def _decode(packed: Tensor, absmax: Tensor, pairs: Tensor, out: Tensor) -> None:
    blocks = len(absmax)
    step = blocks if torch.compiler.is_compiling() else _PIECE // BLOCK
    for start in range(0, blocks, step):
        end = min(start + step, blocks)
        values = pairs[packed[start * _BLOCK_BYTES : end * _BLOCK_BYTES].int()].view(-1, BLOCK)
        room = out[start * BLOCK : end * BLOCK]
        room.copy_((values * absmax[start:end, None]).view(-1)[: len(room)])


def _encode(values: Tensor, size: int, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (filled up to whole blocks) and the absmax of each block."""
    filled = F.pad(values, (0, -len(values) % size)).view(-1, size)
    absmax = filled.abs().amax(dim=1)
    # The reciprocal first, as bitsandbytes has it: a quotient could fall on the other side of a bound.
    scaled = (filled * (1.0 / absmax.clamp(min=_SMALLEST))[:, None]).clamp_(-1, 1)
    return torch.bucketize(scaled, bounds, out_int32=True).to(torch.uint8).view(-1), absmax


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _groups(blocks: int) -> int:
    return -(-blocks // GROUP)


def _begins(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))[:-1]
