"""The engine's batches in the form that Hugging Face's Trainer asks for.

The Trainer counts the micro-batches of an epoch; the engine's loader makes all those of a step at once. One
item of this dataset is one micro-batch, so that both agree on what comes next, also after a resume.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gpubloom.engine.data import Batch, Loader
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.models.documents import document_starts

# What a step counts, told with its first micro-batch; the model does not get to see it.
COUNTS = "counts"


@dataclass(frozen=True)
class Counts:
    """Tokens of the data in a step, and how many of them are trained."""

    tokens: int
    trained: int


class MicroBatches(Dataset[dict[str, Any]]):
    """An epoch's micro-batches by number."""

    def __init__(self, loader: Loader, accumulation: int) -> None:
        self._loader = loader
        self._accumulation = accumulation
        self._epoch = 0
        self._coming: Iterator[Batch] | None = None
        self._at: tuple[int, Batch] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Called when an epoch begins: each has an order of its own."""
        self._epoch, self._coming, self._at = epoch, None, None

    def __len__(self) -> int:
        return self._loader.steps_per_epoch * self._accumulation

    def __getitem__(self, number: int) -> dict[str, Any]:
        step, micro = divmod(number, self._accumulation)
        return model_inputs(self._batch(step), micro)

    def _batch(self, step: int) -> Batch:
        at = -1 if self._at is None else self._at[0]
        if self._at is None or at != step:
            if self._coming is None or step != at + 1:
                self._loader.restore({"epoch": self._epoch, "position": step})
                self._coming = self._loader.rest_of_epoch()
            self._at = step, next(self._coming)
        return self._at[1]


def data_loader(loader: Loader, accumulation: int, *, pinned: bool) -> DataLoader[dict[str, Any]]:
    """A torch DataLoader over the micro-batches, in order."""
    return DataLoader(
        MicroBatches(loader, accumulation), batch_size=1, collate_fn=_only_one, pin_memory=pinned
    )


def model_inputs(batch: Batch, micro: int) -> dict[str, Any]:
    """What a causal language model of transformers is called with for one micro-batch."""
    tokens, targets = batch.tokens_ABT[micro], batch.targets_ABT[micro]
    packed = batch.documents_ABT
    documents = torch.zeros_like(tokens) if packed is None else packed[micro]
    # Labels stand where their token is; the loss moves them by one.
    labels = torch.cat((torch.full_like(targets[:, :1], IGNORED), targets), dim=1)
    last = targets[:, -1:]
    if bool((last == IGNORED).all()):
        labels = labels[:, :-1]
    else:
        # Rows of running text are trained to their last target, which is a token of the next row.
        tokens = torch.cat((tokens, last.clamp(min=0)), dim=1)
        documents = torch.cat((documents, documents[:, -1:]), dim=1)
    return {
        "input_ids": tokens,
        "labels": labels,
        # Positions that begin again are what tells transformers where a document ends.
        "position_ids": _positions(documents),
        COUNTS: Counts(batch.token_count, batch.trained_count) if micro == 0 else None,
    }


def _positions(documents: Tensor) -> Tensor:
    return torch.arange(documents.shape[1]) - document_starts(documents)


def _only_one(items: list[dict[str, Any]]) -> dict[str, Any]:
    return items[0]
