"""How a token is chosen from logits, for many rows at once and without leaving the device.

A random choice takes the largest of logits / temperature + Gumbel noise, which draws from their softmax. The
noise is a hash of (seed, how many tokens the row has drawn, token): a row draws the same tokens whatever
stands beside it in a batch, and no generator has to be kept.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Choice = Literal["greedy", "random", "filtered"]

_MASK = 0xFFFFFFFF
# No model has as many tokens: stands for "all of them".
_ALL = 1 << 30


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen; temperature 0 always takes the likeliest."""

    temperature: float = 0.8
    top_k: int | None = 40
    top_p: float = 1.0
    seed: int = 0

    @property
    def choice(self) -> Choice:
        """The least work that does it."""
        if self.temperature == 0:
            return "greedy"
        return "random" if self.top_k is None and self.top_p >= 1 else "filtered"


GREEDY = Sampling(temperature=0.0, top_k=None)


class SamplingRows:
    """The settings of rows as tensors that keep their addresses."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.temperature = torch.zeros(rows, device=device)
        self.top_k = torch.full((rows,), _ALL, dtype=torch.int64, device=device)
        self.top_p = torch.ones(rows, device=device)
        self.seed = torch.zeros(rows, dtype=torch.int64, device=device)
        self.drawn = torch.zeros(rows, dtype=torch.int64, device=device)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.temperature, self.top_k, self.top_p, self.seed, self.drawn

    def set(self, row: int, sampling: Sampling) -> None:
        values = (sampling.temperature, sampling.top_k or _ALL, sampling.top_p, _signed(sampling.seed), 0)
        for tensor, value in zip(self.tensors, values, strict=True):
            tensor[row] = value

    def choose(self, logits_BV: Tensor, choice: Choice, first: int = 0) -> Tensor:
        """Tokens of the rows from `first` on; counts them as drawn. `choice` must be enough for every row."""
        here = slice(first, first + len(logits_BV))
        temperature, top_k, top_p, seed, drawn = (tensor[here, None] for tensor in self.tensors)
        logits_BV = logits_BV.float()
        if choice == "greedy":
            tokens_B = logits_BV.argmax(dim=-1)
        else:
            # From the largest one down, so that a tiny temperature does not overflow.
            scaled_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / temperature.clamp(min=1e-6)
            if choice == "filtered":
                scaled_BV = _filtered(scaled_BV, top_k, top_p)
            noise_BV = _gumbel(seed, drawn, logits_BV.shape[1])
            # A row at temperature 0 within a batch that draws.
            tokens_B = torch.where(temperature > 0, scaled_BV + noise_BV, logits_BV).argmax(dim=-1)
        self.drawn[here] += 1
        return tokens_B


def _filtered(scaled_BV: Tensor, top_k_B1: Tensor, top_p_B1: Tensor) -> Tensor:
    sorted_BV, order_BV = scaled_BV.sort(dim=-1, descending=True, stable=True)
    ranks_V = torch.arange(scaled_BV.shape[1], device=scaled_BV.device)
    dropped_BV = ranks_V >= top_k_B1
    shares_BV = torch.softmax(sorted_BV.masked_fill(dropped_BV, float("-inf")), dim=-1)
    # The first token is always kept: nothing stands before it.
    dropped_BV = dropped_BV | (shares_BV.cumsum(-1) - shares_BV >= top_p_B1)
    dropped_BV[:, 0] = False
    return scaled_BV.masked_fill(dropped_BV.scatter(1, order_BV, dropped_BV), float("-inf"))


def _gumbel(seed_B1: Tensor, drawn_B1: Tensor, size: int) -> Tensor:
    row_B1 = _hash((seed_B1 & _MASK) ^ _hash(((seed_B1 >> 32) & _MASK) ^ _hash(drawn_B1 & _MASK)))
    tokens_V = torch.arange(size, dtype=torch.int64, device=seed_B1.device)
    bits_BV = _hash((tokens_V * 0x9E3779B9 + row_B1) & _MASK) >> 8
    uniform_BV = (bits_BV.float() + 0.5) / (1 << 24)
    return -torch.log(-torch.log(uniform_BV))


def _hash(x: Tensor) -> Tensor:
    """Mixes the bits of 32-bit numbers, each to another one ("lowbias32")."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def _signed(seed: int) -> int:
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed
