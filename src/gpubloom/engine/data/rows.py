"""Rows: what a run trains on, as rows of one length that have numbers. Text is cut into windows."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

# A target that is not trained; a row that is not there.
IGNORED = -100
NO_ROW = -1

Tokens = npt.NDArray[np.unsignedinteger]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowArrays:
    """Some rows, all of one length. `filling` counts the positions that hold no token of the data."""

    tokens: Numbers
    targets: Numbers
    # Which document of its row a position belongs to; None: every row is one document.
    documents: Numbers | None = None
    filling: int = 0
    # Examples in these rows; of running text, each row is one.
    samples: int = 0
    # No row of the run holds more documents, if that is known.
    most_documents_per_row: int | None = None


class Rows(Protocol):
    """Rows of `length` positions."""

    @property
    def tokens(self) -> Tokens:
        """All tokens, one after the other."""

    @property
    def length(self) -> int: ...

    def __len__(self) -> int: ...

    @property
    def slack(self) -> int:
        """How far rows can be moved without losing one."""

    @property
    def may_repeat(self) -> bool:
        """Whether the last batch of an epoch is filled up with rows from its beginning, or with nothing."""

    def arrays(self, numbers: Numbers, offset: int = 0) -> RowArrays:
        """Rows by number; NO_ROW gives one without tokens."""


@dataclass(frozen=True)
class Windows:
    """A flat token array seen as windows of inputs and targets, one position apart."""

    tokens: Tokens
    length: int
    may_repeat: bool = True

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.length

    @property
    def slack(self) -> int:
        return len(self.tokens) - 1 - len(self) * self.length

    def arrays(self, numbers: Numbers, offset: int = 0) -> RowArrays:
        missing = numbers == NO_ROW
        starts = offset + np.where(missing, 0, numbers) * self.length
        # One more token than the row is long: the last target.
        rows = self.tokens[starts[:, None] + np.arange(self.length + 1)].astype(np.int64)
        targets = np.where(missing[:, None], IGNORED, rows[:, 1:])
        absent = int(missing.sum())
        return RowArrays(rows[:, :-1], targets, filling=absent * self.length, samples=len(numbers) - absent)
