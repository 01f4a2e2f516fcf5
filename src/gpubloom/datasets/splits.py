"""Which examples are held out: by a hash of the example and a seed, so that appending rows moves none of
those already there, and equal examples never stand on both sides."""

import hashlib
from dataclasses import dataclass
from typing import Literal

SplitName = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class Split:
    """The share that is held out, and the seed that chooses it."""

    eval_fraction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.eval_fraction < 1:
            raise ValueError(f"The eval fraction is a number from 0 up to below 1, not {self.eval_fraction}.")

    def of(self, digest: bytes) -> SplitName:
        """The side of the example with this digest."""
        key = self.seed.to_bytes(8, "big", signed=True)
        drawn = int.from_bytes(hashlib.blake2b(digest, digest_size=8, key=key).digest(), "big")
        return "eval" if drawn < self.eval_fraction * 2**64 else "train"
