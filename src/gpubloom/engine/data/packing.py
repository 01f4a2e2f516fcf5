"""Packing: examples of any length in rows of one length.

Which example goes into which row is decided in gpubloom.datasets.packing, by the lengths alone. Every example
keeps a number of its own within its row, so that none sees another.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpubloom.datasets.packing import best_fit, sequence_length
from gpubloom.engine.data.rows import IGNORED, NO_ROW, Numbers, RowArrays, Tokens


@dataclass(frozen=True)
class Examples:
    """Tokenized examples one after the other; `trained` says which of their tokens are."""

    tokens: Tokens
    trained: np.ndarray[tuple[int], np.dtype[np.bool_]]
    # Where each begins, and at the end where the last one ends.
    starts: Numbers

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.starts)

    @property
    def trained_count(self) -> int:
        """Tokens that are predicted: the first of an example has nothing before it."""
        return int(np.count_nonzero(self.trained)) - int(np.count_nonzero(self.trained[self.starts[:-1]]))


@dataclass(frozen=True)
class PackedRows:
    """Examples by rows: row r holds `order[rows[r] : rows[r + 1]]`."""

    examples: Examples
    length: int
    order: Numbers
    rows: Numbers
    # What is trained twice in an epoch weighs twice: the last batch is filled up with nothing.
    may_repeat: bool = False
    slack: int = 0

    @property
    def tokens(self) -> Tokens:
        return self.examples.tokens

    def __len__(self) -> int:
        return len(self.rows) - 1

    @property
    def is_packed(self) -> bool:
        """Whether any row holds more than one example."""
        return len(self) < len(self.examples)

    @cached_property
    def most_documents_per_row(self) -> int:
        """What fills a row counts as one."""
        return int(np.diff(self.rows).max(initial=0)) + 1

    def arrays(self, numbers: Numbers, offset: int = 0) -> RowArrays:
        shape = (len(numbers), self.length)
        tokens, documents = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        targets = np.full(shape, IGNORED, np.int64)
        filling = samples = 0
        for index, number in enumerate(numbers):
            end, document = 0, 0
            # Of an empty row, nothing.
            bounds = (0, 0) if number == NO_ROW else (self.rows[number], self.rows[number + 1])
            packed = self.order[slice(*bounds)]
            for document, example in enumerate(packed, start=1):
                first, last = self.examples.starts[example], self.examples.starts[example + 1]
                begin, end = end, end + int(last - first)
                ids = self.examples.tokens[first:last].astype(np.int64)
                tokens[index, begin:end] = ids
                documents[index, begin:end] = document
                trained = self.examples.trained[first + 1 : last]
                targets[index, begin : end - 1] = np.where(trained, ids[1:], IGNORED)
            documents[index, end:] = document + 1
            filling += self.length - end
            samples += len(packed)
        # One example a row needs no mask: what fills a row stands behind everything that is trained.
        return RowArrays(
            tokens,
            targets,
            documents if self.is_packed else None,
            filling,
            samples,
            self.most_documents_per_row,
        )


def pack(examples: Examples, length: int, *, together: bool) -> PackedRows:
    """Rows of at most `length` tokens; not `together`: one example a row."""
    lengths = examples.lengths.tolist()
    assert max(lengths) <= length, "longer examples are cut or left out before"
    rows = best_fit(lengths, length, together=together)
    ends = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    order = np.fromiter((example for row in rows for example in row), np.int64, len(examples))
    return PackedRows(examples, sequence_length(lengths, rows, length), order, ends)
