"""DecodeBatch: the rows that advance together, as tensors that stay where they are; on a GPU as CUDA graphs.

A step takes each row's newest token, computes its logits, chooses the next token and writes it where the next
step reads it. Nothing of that needs the host, so steps can be launched before the tokens of earlier ones have
been read. A graph is captured the first time that a number of rows (a power of two) and a way of choosing are
needed; a capture takes well under a second, since nothing is compiled but the kernels, once.

Rows 0 … active - 1 are in use. Others of a graph point at block 0 and stand still.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gpubloom.engine.decoding.kv_blocks import BLOCK, KvPool
from gpubloom.engine.decoding.llama_decoder import Piece, Rows
from gpubloom.engine.decoding.sampling import Choice, Sampling, SamplingRows

MOST_ROWS = 32
_CHOICES: tuple[Choice, ...] = ("greedy", "random", "filtered")


class Decoder(Protocol):
    """A model that keeps keys and values in a pool."""

    layers: int
    kv_heads: int
    head_size: int
    context_length: int
    device: torch.device
    dtype: torch.dtype
    has_adapter: bool

    def rows(self, rows: Rows, pool: KvPool) -> Tensor: ...

    def prompt(self, piece: Piece, pool: KvPool) -> Tensor: ...


@dataclass
class _Known:
    """What the host knows of a row in use: its positions with the newest token, and how it is computed."""

    length: int
    choice: Choice
    tuned: bool


class DecodeBatch:
    """Not for several threads at once."""

    def __init__(self, decoder: Decoder, pool: KvPool, most_rows: int = MOST_ROWS) -> None:
        self._decoder = decoder
        self._pool = pool
        device = decoder.device
        blocks = -(-decoder.context_length // BLOCK)
        self._tokens = torch.zeros(most_rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros(most_rows, dtype=torch.int64, device=device)
        self._live = torch.zeros(most_rows, dtype=torch.int64, device=device)
        self._tuned = torch.zeros(most_rows, dtype=decoder.dtype, device=device)
        self._tables = torch.zeros(most_rows, blocks, dtype=torch.int32, device=device)
        self._sampling = SamplingRows(most_rows, device)
        # What the host knows of each row in use.
        self._known: list[_Known] = []
        self._graphs: dict[tuple[int, Choice, bool], Callable[[], None]] = {}
        self._memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @property
    def active(self) -> int:
        return len(self._known)

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        return (
            self._tokens,
            self._positions,
            self._live,
            self._tuned,
            self._tables,
            *self._sampling.tensors,
        )

    def read(self, tokens: Sequence[int], start: int, blocks: Sequence[int], *, tuned: bool) -> Tensor:
        """Reads a piece of a prompt; logits (1, V) of what follows it."""
        device = self._decoder.device
        used = -(-(start + len(tokens)) // BLOCK)
        piece = Piece(
            torch.tensor(tokens, device=device),
            start,
            torch.tensor(blocks[:used], dtype=torch.int32, device=device),
            tuned,
        )
        return self._decoder.prompt(piece, self._pool)

    def join(
        self, logits_1V: Tensor, position: int, blocks: Sequence[int], sampling: Sampling, *, tuned: bool
    ) -> Tensor:
        """A sequence joins behind the others; its first token (1), which stands at `position`."""
        row = self.active
        self._sampling.set(row, sampling)
        first = self._sampling.choose(logits_1V, sampling.choice, row)
        self._tokens[row : row + 1] = first
        self._positions[row] = position
        self._live[row] = 1
        self._tuned[row] = float(tuned)
        self._tables[row].zero_()
        self._tables[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32).to(self._tables.device)
        self._known.append(_Known(position + 1, sampling.choice, tuned))
        return first

    def leave(self, row: int) -> None:
        """The last row takes the place of the one that leaves."""
        last = self.active - 1
        for tensor in self._tensors:
            tensor[row] = tensor[last]
            tensor[last] = 0
        moved = self._known.pop()
        if row < last:
            self._known[row] = moved

    def step(self) -> Tensor:
        """The next token of every row in use (not yet computed on a GPU: reading it waits)."""
        active = self.active
        choice = max((known.choice for known in self._known), key=_CHOICES.index)
        tuned = any(known.tuned for known in self._known)
        if self._memory is None:
            used = -(-max(known.length for known in self._known) // BLOCK)
            self._advance(active, choice, tuned, used)
        else:
            rows = 1 << (active - 1).bit_length()
            self._graph(rows, choice, tuned)()
        for known in self._known:
            known.length += 1
        return self._tokens[:active].clone()

    def _advance(self, rows: int, choice: Choice, tuned: bool, used: int | None = None) -> None:
        given = Rows(
            self._tokens[:rows],
            self._positions[:rows],
            self._tables[:rows, :used],
            self._tuned[:rows] if tuned else None,
        )
        logits_BV = self._decoder.rows(given, self._pool)
        self._tokens[:rows] = self._sampling.choose(logits_BV, choice)
        self._positions[:rows] += self._live[:rows]

    def _graph(self, rows: int, choice: Choice, tuned: bool) -> Callable[[], None]:
        key = rows, choice, tuned
        if key not in self._graphs:
            self._graphs[key] = self._captured(lambda: self._advance(rows, choice, tuned))
        return self._graphs[key]

    def _captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work as a graph; the work itself where it cannot be one, such as layers that choose experts."""
        before = [tensor.clone() for tensor in self._tensors]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        # Once before it is recorded: kernels are compiled and libraries set up. Its effects are undone.
        with torch.cuda.stream(stream):
            work()
            for tensor, old in zip(self._tensors, before, strict=True):
                tensor.copy_(old)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Another thread may load a model meanwhile.
            with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
                work()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as problem:
            sys.stderr.write(f"Decoding without a CUDA graph: {problem}\n")
            torch.cuda.synchronize()
            return work
        return graph.replay
