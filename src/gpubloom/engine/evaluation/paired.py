"""How sure a change of the eval loss is: the same held-out batches before and after, compared pair by pair.

Batches differ far more from each other than a model does from itself a few steps later. Paired, that spread
cancels out. The margin is half of the 95 % interval of the change: a ratio estimate over batches (their
summed losses over their tokens) with its standard error, and Student's t for few batches.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Of Student's distribution, two-sided, by degrees of freedom from 1 on; beyond them the normal one is close.
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
         2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
         2.045, 2.042)  # fmt: skip
_NORMAL_95 = 1.960
# Kept in every checkpoint.
_MOST_PAIRS = 200
# So many batches at least, where there are as many rows: one batch has no spread.
_FEWEST_BATCHES = 8


def batches_for_pairs(rows: int, batch_size: int, max_batches: int) -> tuple[int, int]:
    """Batch size and number of batches for the same rows, in enough batches to tell their spread."""
    count = min(rows, batch_size * max_batches)
    size = max(1, min(batch_size, count // _FEWEST_BATCHES))
    return size, max(1, -(-count // size))


@dataclass(frozen=True)
class BatchLosses:
    """Summed loss and trained tokens of every batch of an evaluation, in the order of the batches."""

    losses: tuple[float, ...]
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, losses: Sequence[float], tokens: Sequence[int]) -> "BatchLosses":
        """Of very many batches, neighbours are added up."""
        groups = min(len(losses), _MOST_PAIRS)
        summed, counted = [0.0] * groups, [0] * groups
        for index, (loss, count) in enumerate(zip(losses, tokens, strict=True)):
            group = index * groups // len(losses)
            summed[group] += loss
            counted[group] += count
        return cls(tuple(summed), tuple(counted))

    def change_since(self, first: "BatchLosses") -> tuple[float, float] | None:
        """Change of the mean loss and its 95 % margin; None if the batches are others, or only one."""
        number = len(self.losses)
        if self.tokens != first.tokens or number < 2 or not (total := sum(self.tokens)):
            return None
        differences = [after - before for after, before in zip(self.losses, first.losses, strict=True)]
        change = sum(differences) / total
        squares = sum(
            (each - change * count) ** 2 for each, count in zip(differences, self.tokens, strict=True)
        )
        error = math.sqrt(squares * number / (number - 1)) / total
        quantile = _T_95[number - 2] if number - 2 < len(_T_95) else _NORMAL_95
        return (change, quantile * error) if math.isfinite(error) else None


class PairedChange:
    """Compares every evaluation of a run with its first one. Kept in checkpoints, for a resume."""

    def __init__(self) -> None:
        self._first: BatchLosses | None = None
        # A run that continues a checkpoint without the first losses does not know what it began with.
        self._is_known = True

    def add(self, found: BatchLosses) -> dict[str, float]:
        """The metrics of the change since the first evaluation; none for the first one itself."""
        if not self._is_known:
            return {}
        if self._first is None:
            self._first = found
            return {}
        change = found.change_since(self._first)
        return {} if change is None else dict(zip(CHANGE_METRICS, change, strict=True))

    def state(self) -> dict[str, Any]:
        first = self._first or BatchLosses((), ())
        return {"losses": list(first.losses), "tokens": list(first.tokens)} if self._is_known else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            losses, tokens = map(float, state["losses"]), map(int, state["tokens"])
            found = BatchLosses(tuple(losses), tuple(tokens))
            self._first = found if found.losses else None
        except (KeyError, TypeError, ValueError):
            self._first, self._is_known = None, False


CHANGE_METRICS = ("eval/loss_change", "eval/loss_change_margin")
