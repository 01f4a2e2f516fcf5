"""Perplexity: how surprised a model is by the tokens that are trained, and by no others.

A document is computed by itself, as it is seen in training, where attention stays inside it. Documents of
similar length share a pass, filled up behind: what stands behind a position cannot change it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.generate import TextModel

# Logits of a pass are the largest thing in memory besides the weights: so many numbers at most.
_MOST_LOGITS = 1 << 26


@dataclass(frozen=True)
class Perplexity:
    """Means over `tokens` trained tokens."""

    loss: float
    perplexity: float
    tokens: int

    def record(self) -> dict[str, float | int | None]:
        """As JSON, which knows no infinity."""
        finite = self.perplexity if math.isfinite(self.perplexity) else None
        return {"loss": self.loss, "perplexity": finite, "tokens": self.tokens}


@dataclass(frozen=True)
class Document:
    """Tokens that are seen together, and what each should be followed by."""

    tokens: Tensor
    targets: Tensor


@torch.inference_mode()
def perplexity(
    model: TextModel, batches: Iterable[Batch], vocab_size: int, between: Callable[[], None] = lambda: None
) -> Perplexity:
    """`between` is called after each batch."""
    loss, tokens = 0.0, 0
    for batch in batches:
        for group in _groups(documents(batch), _MOST_LOGITS // vocab_size):
            loss += _loss(model, group, vocab_size)
            tokens += sum(int((document.targets != IGNORED).sum()) for document in group)
        between()
    if not tokens:
        raise ValueError("There is no trained token in the data to evaluate on.")
    mean = loss / tokens
    # exp overflows long before a loss stops being comparable.
    return Perplexity(mean, math.exp(mean) if mean < 700 else math.inf, tokens)


def documents(batch: Batch) -> Iterator[Document]:
    """The documents of a batch in which something is trained."""
    rows = zip(batch.tokens_ABT.flatten(0, 1), batch.targets_ABT.flatten(0, 1), strict=True)
    numbers_NT = None if batch.documents_ABT is None else batch.documents_ABT.flatten(0, 1)
    for index, (tokens_T, targets_T) in enumerate(rows):
        lengths = [len(tokens_T)]
        if numbers_NT is not None:
            lengths = torch.unique_consecutive(numbers_NT[index], return_counts=True)[1].tolist()
        for tokens, targets in zip(tokens_T.split(lengths), targets_T.split(lengths), strict=True):
            trained = (targets != IGNORED).nonzero()
            if len(trained):
                # What stands behind the last trained target is not needed.
                end = int(trained[-1]) + 1
                yield Document(tokens[:end], targets[:end])


def _groups(found: Iterable[Document], positions: int) -> Iterator[list[Document]]:
    """Documents of similar length, together no more than so many positions."""
    group: list[Document] = []
    for document in sorted(found, key=lambda document: len(document.tokens)):
        if group and (len(group) + 1) * len(document.tokens) > positions:
            yield group
            group = []
        group.append(document)
    if group:
        yield group


def _loss(model: TextModel, group: list[Document], vocab_size: int) -> float:
    device = next(model.parameters()).device
    longest = max(len(document.tokens) for document in group)
    tokens_BT = torch.zeros(len(group), longest, dtype=torch.long)
    targets_BT = torch.full((len(group), longest), IGNORED)
    for row, document in enumerate(group):
        tokens_BT[row, : len(document.tokens)] = document.tokens
        targets_BT[row, : len(document.tokens)] = document.targets
    piece = longest
    if model.reads_in_pieces:
        piece = max(1, min(longest, _MOST_LOGITS // vocab_size // len(group)))
    cache = model.new_cache()
    loss = 0.0
    for start in range(0, longest, piece):
        here = slice(start, start + piece)
        logits_BTV = model(tokens_BT[:, here].to(device), cache).float()
        targets_N = targets_BT[:, here].to(device).flatten()
        loss += float(
            F.cross_entropy(logits_BTV.flatten(0, 1), targets_N, ignore_index=IGNORED, reduction="sum")
        )
    return loss
