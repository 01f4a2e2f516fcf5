"""Batcher: requests join and leave a running batch (continuous batching).

One thread owns the device. In each turn it admits requests while there are blocks and rows for them, reads
one piece of one prompt, launches one step of all rows, and hands out the tokens of the step before. So:

- first come, first served; prompts that are being read take turns piece by piece, and no row waits longer for
  its next token than one piece takes
- on a GPU the tokens of a step are read while the next one runs. A row that turns out to have ended has then
  computed one token too many, which is dropped
- a request that no longer has a reader leaves at the next turn
- a failure while a prompt is read ends that request; a failure of a step ends the requests in the batch. The
  next request starts afresh
"""

import queue
import threading
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpubloom.engine.decoding.decode_batch import MOST_ROWS, DecodeBatch, Decoder
from gpubloom.engine.decoding.kv_blocks import BLOCK, BlockAllocator, BlockList, KvPool
from gpubloom.engine.decoding.sampling import Sampling
from gpubloom.engine.host_memory import free_host_bytes

# So many positions of a prompt are read at a time: others wait no longer than that for their next token.
PIECE = 512
# The pool holds this many positions for each row, and one whole context in any case, if memory allows.
_POSITIONS_PER_ROW = 4_096
_SHARE_OF_FREE = {"cuda": 0.4, "cpu": 0.2}


@dataclass(eq=False)
class _Request:
    prompt: list[int]
    sampling: Sampling
    max_tokens: int
    ends: frozenset[int]
    tuned: bool
    tokens: "queue.SimpleQueue[int | Exception | None]" = field(default_factory=queue.SimpleQueue)
    cancelled: bool = False
    finished: bool = False
    blocks: BlockList | None = None
    # Positions of the prompt that have been read, and tokens that were launched and handed out.
    read: int = 0
    launched: int = 0
    said: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Launch:
    """Tokens that are on their way to the host, one for each request."""

    tokens: Tensor
    arrived: torch.cuda.Event | None
    requests: tuple[_Request, ...]


class Batcher:
    """The pool is allocated and the thread started with the first request."""

    def __init__(self, decoder: Decoder, *, most_rows: int = MOST_ROWS, blocks: int | None = None) -> None:
        self._decoder = decoder
        self._most_rows = most_rows
        self._blocks = blocks
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        # These belong to the thread.
        self._reading: deque[_Request] = deque()
        self._rows: list[_Request] = []
        self._in_flight: deque[_Launch] = deque()

    def tokens(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        max_tokens: int,
        ends: frozenset[int],
        tuned: bool = False,
    ) -> Generator[int, None, None]:
        """Token ids until one of `ends` or max_tokens. A caller that stops iterating cancels the request."""
        if max_tokens < 1:
            return
        request = _Request(list(prompt), sampling, max_tokens, ends, tuned)
        try:
            self._submit(request)
            while (token := request.tokens.get()) is not None:
                if isinstance(token, Exception):
                    raise token
                yield token
        finally:
            request.cancelled = True

    def close(self) -> None:
        """Ends all requests and frees the pool."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _submit(self, request: _Request) -> None:
        with self._changed:
            if self._closing:
                request.tokens.put(None)
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="decoding", daemon=True)
                self._thread.start()
            self._waiting.append(request)
            self._changed.notify()

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            with torch.inference_mode():
                self._start()
                while self._wait():
                    self._turn()
        except Exception as problem:  # noqa: BLE001 - each request's reader raises it
            failure = problem
        with self._changed:
            # Unless the batcher was closed, the next request starts another thread, which finds nothing here.
            unfinished = [*self._rows, *self._reading, *self._waiting]
            self._waiting.clear()
            self._reading.clear()
            self._rows.clear()
            self._in_flight.clear()
            for name in ("_pool", "_allocator", "_batch"):
                self.__dict__.pop(name, None)
            self._thread = None
        for request in unfinished:
            request.tokens.put(failure)

    def _start(self) -> None:
        decoder = self._decoder
        blocks = self._blocks or _affordable_blocks(decoder, self._most_rows)
        self._pool = KvPool(
            blocks, decoder.layers, decoder.kv_heads, decoder.head_size, decoder.dtype, decoder.device
        )
        self._allocator = BlockAllocator(blocks)
        self._batch = DecodeBatch(decoder, self._pool, self._most_rows)

    def _wait(self) -> bool:
        """Waits for work; False when it is over."""
        with self._changed:
            while not self._closing and not (self._waiting or self._reading or self._rows or self._in_flight):
                self._changed.wait()
            return not self._closing

    def _turn(self) -> None:
        for request in [*self._rows, *self._reading]:
            if request.cancelled:
                self._finish(request)
        self._admit()
        self._read_piece()
        self._step()
        kept = 1 if self._rows and self._decoder.device.type == "cuda" else 0
        while len(self._in_flight) > kept:
            self._hand_out(self._in_flight.popleft())

    def _admit(self) -> None:
        with self._changed:
            while self._waiting and len(self._rows) + len(self._reading) < self._most_rows:
                request = self._waiting[0]
                if request.cancelled:
                    self._waiting.popleft()
                    continue
                length = len(request.prompt) + request.max_tokens
                if -(-length // BLOCK) >= self._allocator.count:
                    self._waiting.popleft()
                    sentence = f"The pool of keys and values holds fewer than {length:,} positions."
                    request.tokens.put(torch.OutOfMemoryError(sentence))
                    continue
                request.blocks = self._allocator.reserve(request.prompt, length, request.tuned)
                if request.blocks is None:
                    return
                request.read = request.blocks.reused
                self._reading.append(self._waiting.popleft())

    def _read_piece(self) -> None:
        if not self._reading:
            return
        request = self._reading.popleft()
        blocks = request.blocks
        assert blocks is not None
        try:
            piece = request.prompt[request.read : request.read + PIECE]
            logits_1V = self._batch.read(piece, request.read, blocks.blocks, tuned=request.tuned)
            request.read += len(piece)
            self._allocator.remember(blocks, request.prompt[: request.read], request.tuned)
            if request.read < len(request.prompt):
                self._reading.append(request)
                return
            first = self._batch.join(
                logits_1V, len(request.prompt), blocks.blocks, request.sampling, tuned=request.tuned
            )
        except Exception as problem:  # noqa: BLE001 - the request's reader raises it
            self._fail([request], problem)
            return
        self._rows.append(request)
        self._launched(first, [request])

    def _step(self) -> None:
        if not self._rows:
            return
        try:
            tokens_B = self._batch.step()
        except Exception as problem:  # noqa: BLE001 - each request's reader raises it
            self._fail(list(self._rows), problem)
            return
        self._launched(tokens_B, list(self._rows))

    def _launched(self, tokens: Tensor, requests: list[_Request]) -> None:
        arrived = None
        if tokens.is_cuda:
            host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            host.copy_(tokens, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
            tokens = host
        self._in_flight.append(_Launch(tokens, arrived, tuple(requests)))
        for request in requests:
            request.launched += 1
            if request.launched == request.max_tokens:
                self._leave(request)

    def _hand_out(self, launch: _Launch) -> None:
        if launch.arrived is not None:
            launch.arrived.synchronize()
        for request, token in zip(launch.requests, launch.tokens.tolist(), strict=True):
            if request.finished:
                continue
            if token in request.ends:
                self._finish(request)
                continue
            request.said.append(token)
            request.tokens.put(token)
            if len(request.said) == request.max_tokens:
                self._finish(request)

    def _finish(self, request: _Request, problem: Exception | None = None) -> None:
        if request.finished:
            return
        request.finished = True
        self._leave(request)
        if request in self._reading:
            self._reading.remove(request)
        if request.blocks is not None:
            if problem is None and request.said:
                # The newest token has not been computed yet.
                seen = [*request.prompt, *request.said[:-1]]
                self._allocator.remember(request.blocks, seen, request.tuned)
            self._allocator.release(request.blocks)
        request.tokens.put(problem)

    def _fail(self, requests: list[_Request], problem: Exception) -> None:
        for request in requests:
            self._finish(request, problem)

    def _leave(self, request: _Request) -> None:
        if request in self._rows:
            row, last = self._rows.index(request), self._rows.pop()
            if last is not request:
                self._rows[row] = last
            self._batch.leave(row)


def _affordable_blocks(decoder: Decoder, rows: int) -> int:
    position = 2 * decoder.layers * decoder.kv_heads * decoder.head_size * decoder.dtype.itemsize
    if decoder.device.type == "cuda":
        # What torch keeps for later is free as well.
        kept = torch.cuda.memory_reserved(decoder.device) - torch.cuda.memory_allocated(decoder.device)
        free = int(torch.cuda.mem_get_info(decoder.device)[0]) + kept
    else:
        free = free_host_bytes()
    wanted = max(decoder.context_length, rows * min(_POSITIONS_PER_ROW, decoder.context_length))
    affordable = int(free * _SHARE_OF_FREE[decoder.device.type]) // position
    # One block for nobody, and one for the rest of a context.
    return max(2, min(wanted, affordable) // BLOCK) + 2
