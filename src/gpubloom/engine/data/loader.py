"""Loader: the batches of a run in an order that depends on seed and epoch alone.

Its whole state is (epoch, position), so a resumed run continues with the very next batch. All batches have
one size: what is missing in the last one is repeated where rows may repeat, and else left empty.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gpubloom.engine.data.rows import IGNORED, NO_ROW, Numbers, RowArrays, Rows
from gpubloom.errors import InputError
from gpubloom.plan.steps import filled_batch_size


@dataclass(frozen=True)
class Batch:
    """All micro-batches of one step. Shape letters: A accumulation, B rows, T positions."""

    tokens_ABT: Tensor
    targets_ABT: Tensor
    # Which document of its row a position belongs to; None: every row is one document.
    documents_ABT: Tensor | None = None
    # Positions that hold no token of the data.
    filling: int = 0
    # Examples; of running text, rows.
    samples: int = 0
    # No row of the run holds more documents, if that is known.
    most_documents_per_row: int | None = None

    def pinned(self) -> "Batch":
        """The same batch in pinned memory."""
        documents = None if self.documents_ABT is None else self.documents_ABT.pin_memory()
        return replace(
            self,
            tokens_ABT=self.tokens_ABT.pin_memory(),
            targets_ABT=self.targets_ABT.pin_memory(),
            documents_ABT=documents,
        )

    @property
    def token_count(self) -> int:
        return self.tokens_ABT.numel() - self.filling

    @property
    def trained_count(self) -> int:
        return int((self.targets_ABT != IGNORED).sum())


class Loader:
    """Visits every row once per epoch, in a new order each time."""

    def __init__(
        self,
        rows: Rows,
        *,
        batch_size: int,
        accumulation: int,
        seed: int,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        """With several processes, the one of this rank gets its share of every step's rows."""
        if not rows.may_repeat:
            batch_size = filled_batch_size(len(rows), batch_size, accumulation, processes)
        self.batch_size = batch_size
        self.rows_per_step = batch_size * accumulation * processes
        self._rank = rank
        self._processes = processes
        self.steps_per_epoch = -(-len(rows) // self.rows_per_step)
        self.epoch = 0
        self.position = 0
        self._rows = rows
        self._shape = (accumulation, batch_size, rows.length)
        self._seed = seed

    def rest_of_epoch(self, gpu: torch.device | None = None) -> Iterator[Batch]:
        """The batches that are left in this epoch. State moves on before a batch is handed out.

        A thread makes the next batch while the present one is used. For a GPU, batches are in pinned memory.
        """
        epoch = self.epoch
        generator = np.random.default_rng([self._seed, epoch])
        offset = int(generator.integers(self._rows.slack + 1))
        order = generator.permutation(len(self._rows))
        whole = self.steps_per_epoch * self.rows_per_step
        order = np.resize(order, whole) if self._rows.may_repeat else _filled(order, whole)

        def make(position: int) -> Batch:
            numbers = self._own(order[position * self.rows_per_step :][: self.rows_per_step])
            batch = _batch(self._rows.arrays(numbers, offset), self._shape)
            return batch if gpu is None else batch.pinned()

        # A thread that pins memory without a device of its own would open a context on the first GPU.
        begin = (lambda: None) if gpu is None else (lambda: torch.cuda.set_device(gpu))
        with ThreadPoolExecutor(1, thread_name_prefix="loader", initializer=begin) as thread:
            upcoming = thread.submit(make, self.position)
            while self.epoch == epoch:
                batch = upcoming.result()
                self.position += 1
                if self.position == self.steps_per_epoch:
                    self.epoch, self.position = epoch + 1, 0
                else:
                    upcoming = thread.submit(make, self.position)
                yield batch

    def _own(self, numbers: Numbers) -> Numbers:
        """Micro-batch by micro-batch: together, processes see the rows that one with larger ones would."""
        accumulation, batch_size, _ = self._shape
        return numbers.reshape(accumulation, self._processes, batch_size)[:, self._rank].reshape(-1)

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position, "rows": self.rows_per_step}

    def restore(self, state: dict[str, int]) -> None:
        """ValueError where a step had other rows: the position would be another place in the data."""
        # Checkpoints of earlier versions do not say it.
        rows = state.get("rows", self.rows_per_step)
        if rows != self.rows_per_step:
            raise InputError(
                "checkpoint_mismatch",
                f"The checkpoint was saved with {rows} rows per step, but this run has {self.rows_per_step} "
                "rows per step: use the same number of processes as before, or a batch_size that gives the "
                "same number of rows.",
            )
        self.epoch, self.position = state["epoch"], state["position"]


def eval_batches(rows: Rows, *, batch_size: int, max_batches: int) -> Iterator[Batch]:
    """Evaluation rows spread evenly over the data, always the same ones, in batches of one size."""
    count = min(len(rows), batch_size * max_batches)
    batch_size = min(batch_size, count)
    numbers = np.linspace(0, len(rows) - 1, count).astype(np.int64)
    numbers = _filled(numbers, -(-count // batch_size) * batch_size)
    for start in range(0, len(numbers), batch_size):
        found = rows.arrays(numbers[start : start + batch_size])
        yield _batch(found, (1, batch_size, rows.length))


def _filled(numbers: Numbers, size: int) -> Numbers:
    return np.concatenate((numbers, np.full(size - len(numbers), NO_ROW, dtype=np.int64)))


def _batch(rows: RowArrays, shape: tuple[int, int, int]) -> Batch:
    def tensor(array: Numbers) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).view(shape)

    documents = None if rows.documents is None else tensor(rows.documents)
    return Batch(
        tensor(rows.tokens),
        tensor(rows.targets),
        documents,
        rows.filling,
        rows.samples,
        rows.most_documents_per_row,
    )
