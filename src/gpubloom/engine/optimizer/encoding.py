"""FP32 arrays in fewer bytes: masters in two halves, moments in bf16 or 8 bits.

A **split** master is exact. Its upper half is the value rounded to bf16 (nearest, ties away from zero), which
is at the same time the copy that layers compute with; its lower half are the value's own low 16 bits. Read as
a signed number and added to the upper half, they give back every bit (a signalling NaN becomes a quiet one).
With ties to even this would be impossible: two values would have the same halves.

Moments in **bf16** and in **8 bits** are rounded up or down by chance, in proportion, so that changes smaller
than a unit are not lost on average; chance is a function of the update's number and the element's place. In
8 bits, 64 values share a power of two. First moments have a sign, 4 bits of exponent and 3 of fraction. Of
second moments the square root is kept, with 5 bits of exponent and 3 of fraction. What was decoded is encoded
to itself, so that a checkpoint in FP32 loses nothing.

The same bits come from adamw.c; integer arithmetic here, so that GPUs and compilers can do it, too.
"""

from typing import Literal

import torch
from torch import Tensor

Encoding = Literal["fp32", "split", "bf16", "8bit"]

BLOCK = 64
# Without chance: to nearest.
NEAREST = 0x80000
_SIGN, _REST = 0x80, 0x7F
_MASK = 0xFFFFFFFF
_SMALLEST_NORMAL = 2.0**-126


class Flat:
    """A flat array of FP32 values in an encoding. `roots`: they are second moments.

    `tensors` is what is held and moved: halves, or codes and scales, or the values.
    """

    def __init__(self, encoding: Encoding, tensors: tuple[Tensor, ...], *, roots: bool = False) -> None:
        self.encoding = encoding
        self.tensors = tensors
        self.roots = roots

    @staticmethod
    def lengths(encoding: Encoding, length: int) -> tuple[tuple[int, torch.dtype], ...]:
        """Lengths and types of the tensors that hold so many values."""
        match encoding:
            case "fp32":
                return ((length, torch.float32),)
            case "bf16":
                return ((length, torch.bfloat16),)
            case "split":
                return ((length, torch.bfloat16), (length, torch.int16))
            case "8bit":
                return ((length, torch.uint8), (-(-length // BLOCK), torch.uint8))

    def __len__(self) -> int:
        return len(self.tensors[0])

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    def part(self, span: slice) -> "Flat":
        """A stretch of it, which in 8 bits begins with a block."""
        if self.encoding == "8bit":
            scales = slice(span.start // BLOCK, -(-span.stop // BLOCK))
            return Flat("8bit", (self.tensors[0][span], self.tensors[1][scales]), roots=self.roots)
        return Flat(self.encoding, tuple(each[span] for each in self.tensors), roots=self.roots)

    def read(self) -> Tensor:
        """The values: the array itself if it is FP32, else decoded."""
        match self.encoding:
            case "fp32":
                return self.tensors[0]
            case "bf16":
                return self.tensors[0].float()
            case "split":
                return join(*self.tensors)
            case "8bit":
                return decode_8bit(*self.tensors, roots=self.roots)

    def write(self, values: Tensor, noise: Tensor | None = None) -> None:
        """Encodes values; `noise` are 32 random bits for each, else they are rounded to nearest."""
        match self.encoding:
            case "fp32":
                if values is not self.tensors[0]:
                    self.tensors[0].copy_(values)
            case "bf16":
                self.tensors[0].copy_(encode_bf16(values, noise, roots=self.roots))
            case "split":
                split(values, *self.tensors)
            case "8bit":
                codes, scales = encode_8bit(values, noise, roots=self.roots)
                self.tensors[0].copy_(codes)
                self.tensors[1].copy_(scales)


def join(half: Tensor, low: Tensor) -> Tensor:
    return (half.view(torch.int16).int().bitwise_left_shift(16) + low.int()).view(torch.float32)


def split(values: Tensor, half: Tensor, low: Tensor) -> None:
    bits = values.view(torch.int32)
    rounded = (bits + 0x8000).bitwise_right_shift(16)
    upper = torch.where(values.isnan(), bits.bitwise_right_shift(16) | 0x40, rounded)
    half.view(torch.int16).copy_(upper.to(torch.int16))
    low.copy_(_signed_16(bits & 0xFFFF))


def round_into(copy: Tensor, values: Tensor) -> None:
    """The copy that layers compute with. On a CPU it is the same for split masters and for whole ones."""
    if copy.dtype != torch.bfloat16 or copy.device.type != "cpu":
        copy.copy_(values)
        return
    bits = values.view(torch.int32)
    rounded = (bits + 0x8000).bitwise_right_shift(16)
    upper = torch.where(values.isnan(), bits.bitwise_right_shift(16) | 0x40, rounded)
    copy.view(torch.int16).copy_(upper.to(torch.int16))


def random_bits(length: int, offset: int | Tensor, device: torch.device) -> Tensor:
    """32 bits for each of so many elements; `offset` is the place of the first, plus `seed_of` the update."""
    x = (torch.arange(length, device=device) + offset) & _MASK
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _MASK
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def seed_of(updates: int) -> int:
    return (updates * 0x9E3779B1) & _MASK


def encode_bf16(values: Tensor, noise: Tensor | None, *, roots: bool) -> Tensor:
    bits = values.view(torch.int32).long() & _MASK
    chance = 0x8000 if noise is None else (noise >> (16 if roots else 0)) & 0xFFFF
    quiet = torch.where(values.isnan(), 0x40, 0)
    found = torch.where(values.isfinite(), (bits + chance) >> 16, (bits >> 16) | quiet)
    return _signed_16(found & 0xFFFF).view(torch.bfloat16)


def encode_8bit(values: Tensor, noise: Tensor | None, *, roots: bool) -> tuple[Tensor, Tensor]:
    """Codes, and one exponent for each block; what follows the last value is taken to be 0."""
    length = len(values)
    blocks = _blocks(values)
    if roots:
        # The square of a denormal's root need not be the denormal; that of any other root is.
        blocks = torch.where(blocks < _SMALLEST_NORMAL, 0.0, blocks).sqrt()
    magnitudes = blocks.view(torch.int32) & 0x7FFFFFFF
    fields = (magnitudes.amax(dim=-1, keepdim=True) + 0xFFFFF) >> 23
    fields = fields.clamp(min=1)
    scales = torch.where(fields > 253, 255, fields)
    factors = ((254 - fields.clamp(max=253)) << 23).view(torch.float32)
    bits = (blocks * factors).view(torch.int32)
    magnitudes = bits & 0x7FFFFFFF
    if noise is None:
        chance: Tensor | int = NEAREST
    else:
        chance = ((_blocks(noise) >> (12 if roots else 0)) & 0xFFFFF).int()
    exponents, fixed, lowest = (31, 2.0**53, 30) if roots else (15, 2.0**37, 14)
    normal = ((magnitudes + chance) >> 20) - ((127 - exponents) << 3)
    is_small = magnitudes < (127 - lowest) << 23
    below = torch.where(is_small, magnitudes, 0).view(torch.float32)
    small = ((below * fixed).int() + chance) >> 20
    codes = torch.where(is_small, small, normal)
    if not roots:
        codes = codes | torch.where(bits < 0, _SIGN, 0)
    return (codes & 0xFF).to(torch.uint8).view(-1)[:length], scales.to(torch.uint8).view(-1)


def decode_8bit(codes: Tensor, scales: Tensor, *, roots: bool) -> Tensor:
    length = len(codes)
    blocks = _blocks(codes).int()
    magnitudes = blocks if roots else blocks & _REST
    exponents, unit = (31, 2.0**-33) if roots else (15, 2.0**-17)
    normal = ((magnitudes + ((127 - exponents) << 3)) << 20).view(torch.float32)
    values = torch.where(magnitudes < 8, magnitudes.float() * unit, normal)
    values = values * (scales.int() << 23).view(torch.float32).unsqueeze(-1)
    values = values * values if roots else torch.where(blocks >= _SIGN, -values, values)
    return values.view(-1)[:length]


def _blocks(values: Tensor) -> Tensor:
    missing = -len(values) % BLOCK
    return (torch.nn.functional.pad(values, (0, missing)) if missing else values).view(-1, BLOCK)


def _signed_16(bits: Tensor) -> Tensor:
    """16 bits as a signed number of 16 bits."""
    return torch.where(bits >= 0x8000, bits - 0x10000, bits).to(torch.int16)
