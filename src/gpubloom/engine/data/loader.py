"""Loader: the batches of a run in an order that depends on seed and epoch alone.

Its whole state is (epoch, position), so a resumed run continues with the very next batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpubloom.engine.data.dataset import Windows


@dataclass(frozen=True)
class Batch:
    """All micro-batches of one step. Shape letters: A accumulation, B rows, T positions."""

    tokens_ABT: Tensor
    targets_ABT: Tensor
    # Which document of its row a position belongs to; None: every row is one document.
    documents_ABT: Tensor | None = None

    @property
    def token_count(self) -> int:
        return self.tokens_ABT.numel()


class Loader:
    """Visits every window once per epoch, in a new order each time."""

    def __init__(self, windows: Windows, *, batch_size: int, accumulation: int, seed: int) -> None:
        self._windows = windows
        self._shape = (accumulation, batch_size, windows.length)
        self._seed = seed
        rows_per_step = batch_size * accumulation
        self.steps_per_epoch = -(-len(windows) // rows_per_step)
        self.epoch = 0
        self.position = 0

    def rest_of_epoch(self) -> Iterator[Batch]:
        """The batches that are left in this epoch. State moves on before a batch is handed out."""
        epoch = self.epoch
        generator = np.random.default_rng([self._seed, epoch])
        offset = int(generator.integers(self._windows.slack + 1))
        rows_per_step = self._shape[0] * self._shape[1]
        # Filled up from its own start, so that the last batch is as large as every other.
        order = np.resize(generator.permutation(len(self._windows)), self.steps_per_epoch * rows_per_step)
        while self.epoch == epoch:
            numbers = order[self.position * rows_per_step :][:rows_per_step]
            self.position += 1
            if self.position == self.steps_per_epoch:
                self.epoch, self.position = epoch + 1, 0
            yield _batch(self._windows.rows(numbers, offset), self._shape)

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def restore(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]


def eval_batches(windows: Windows, *, batch_size: int, max_batches: int) -> Iterator[Batch]:
    """Evaluation rows spread evenly over the text, always the same ones; the last batch may be smaller."""
    count = min(len(windows), batch_size * max_batches)
    numbers = np.linspace(0, len(windows) - 1, count).astype(np.int64)
    for start in range(0, count, batch_size):
        rows = windows.rows(numbers[start : start + batch_size])
        yield _batch(rows, (1, len(rows), windows.length))


def _batch(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], shape: tuple[int, int, int]) -> Batch:
    rows_ABT = torch.from_numpy(rows).view(shape[0], shape[1], shape[2] + 1)
    return Batch(rows_ABT[..., :-1].contiguous(), rows_ABT[..., 1:].contiguous())
