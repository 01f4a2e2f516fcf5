"""Snapshot: the state of all blocks at one moment, handed out piece by piece while training goes on.

A thread goes through the blocks in forward order and copies each state into memory that belongs to the
snapshot, never more than its budget; whoever takes the pieces gives that memory back. A block may be changed
again as soon as it is copied: `wait_for` is what the next update asks before it changes one. So training goes
on at once when the budget holds everything, and otherwise as fast as pieces are taken, block by block.

Invariants: a piece holds the values of the moment of the call; the thread that copies waits for nobody but
earlier updates and the takers of pieces; a snapshot that is abandoned holds nobody up.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device, Lane
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.host_memory import host_buffer
from gpubloom.engine.optimizer.encoding import BLOCK, Flat
from gpubloom.engine.optimizer.moments import PARTS as PARTS
from gpubloom.engine.optimizer.moments import Part as Part

WEIGHTS: tuple[Part, ...] = ("master",)
MOMENTS: tuple[Part, ...] = ("first", "second")

_SMALLEST_PIECE, _LARGEST_PIECE = 4 << 10, 32 << 20


class SnapshotAbandoned(RuntimeError):
    """The snapshot was abandoned before it was read completely."""


@dataclass(frozen=True)
class Piece:
    """A stretch of one block's flat state, in host memory."""

    block: int
    part: Part
    start: int
    values: Tensor


class Snapshot:
    """Made between two steps by the thread that trains; taken by others."""

    def __init__(
        self,
        stores: Sequence[BlockStore],
        device: Device,
        wait_for_updates: Callable[[int], None],
        *,
        buffer_bytes: int,
        streams: Sequence[Sequence[Part]] = (WEIGHTS, MOMENTS),
    ) -> None:
        """`wait_for_updates(block)` returns when what was ordered before this moment is done and at home.

        `streams` says which parts of the state are wanted; all streams must be taken at the same time.
        """
        self._stores = stores
        self._device = device
        self._wait_for_updates = wait_for_updates
        self._memory = _Memory(buffer_bytes)
        # Several pieces fit, so that copying and taking overlap.
        piece_bytes = min(_LARGEST_PIECE, max(_SMALLEST_PIECE, buffer_bytes // 4))
        self._piece_length = piece_bytes // torch.float32.itemsize // BLOCK * BLOCK
        self._copied = [threading.Event() for _ in stores]
        self._streams = {part: stream for stream in map(_Stream, streams) for part in stream.parts}
        self._problem: BaseException | None = None
        self._abandoned = False
        # A lane of its own: copies of the step must not stand in line behind those of the snapshot.
        self._lane = Lane(torch.cuda.Stream(device.torch)) if device.is_gpu else device.copy_out  # type: ignore[no-untyped-call]
        self._staging: Tensor | None = None
        self._thread = threading.Thread(target=self._copy_all, name="snapshot", daemon=True)
        self._thread.start()

    @property
    def peak_bytes(self) -> int:
        """The most memory that pieces took at one time."""
        return self._memory.peak

    def wait_for(self, block: int) -> None:
        """Wait until a block may be changed."""
        self._copied[block].wait()

    def pieces(self, part: Part) -> Iterator[Piece]:
        """Pieces of the stream that `part` belongs to, in order, each valid until the next is asked for."""
        stream = self._streams[part]
        while (piece := stream.queue.get()) is not None:
            try:
                yield piece
            finally:
                self._memory.give(piece.values)
        if self._problem is not None:
            raise self._problem
        if self._abandoned:
            raise SnapshotAbandoned("The snapshot was abandoned.")

    def abandon(self) -> None:
        """Abandon the snapshot: free its memory, release waiting threads, raise in threads that read it."""
        self._abandoned = True
        self._memory.close()
        for copied in self._copied:
            copied.set()
        self._end_streams()

    def _copy_all(self) -> None:
        try:
            for index, store in enumerate(self._stores):
                self._wait_for_updates(index)
                for part in self._streams:
                    self._copy(index, part, store.state[part])
                self._copied[index].set()
        except BaseException as problem:  # noqa: BLE001 - raised again by whoever takes the pieces
            self._problem = problem
            self.abandon()
        self._staging = None
        self._memory.close()
        self._end_streams()

    def _end_streams(self) -> None:
        for stream in set(self._streams.values()):
            if self._abandoned:
                stream.drop()
            stream.queue.put(None)

    def _copy(self, block: int, part: Part, state: Flat) -> None:
        for start in range(0, len(state), self._piece_length):
            source = state.part(slice(start, min(start + self._piece_length, len(state))))
            values = self._memory.take(len(source))
            if source.device.type == "cpu":
                values.copy_(source.read())
            else:
                self._copy_from_device(source, values)
            self._streams[part].queue.put(Piece(block, part, start, values))

    def _copy_from_device(self, source: Flat, values: Tensor) -> None:
        """By way of a little pinned memory: pinning all of it would take longer than copying."""
        if self._staging is None:
            self._staging = self._device.host(self._piece_length, torch.float32)
        staging = self._staging[: len(source)]
        with self._lane.active():
            staging.copy_(source.read(), non_blocking=True)
        self._lane.mark().wait_on_host()
        values.copy_(staging)


class _Stream:
    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()

    def drop(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.queue.get_nowait()


class _Memory:
    """Buffers within a budget. One is given in any case: a small budget means slow and never stuck."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._changed = threading.Condition()
        self._used = 0
        self._spare: list[Tensor] = []
        self._closed = False
        self.peak = 0

    def take(self, length: int) -> Tensor:
        needed = length * torch.float32.itemsize
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._used == 0 or self._used + needed <= self._budget
            )
            if self._closed:
                raise SnapshotAbandoned("The snapshot was abandoned.")
            self._used += needed
            # Pages that were touched before cost nothing to write; those of another size must make room.
            fitting = [number for number, spare in enumerate(self._spare) if len(spare) == length]
            if fitting:
                return self._spare.pop(fitting[0])
            while self._spare and self._held() > self._budget:
                self._spare.pop()
            self.peak = max(self.peak, self._held())
        return host_buffer(length, torch.float32, pinned=False)

    def give(self, values: Tensor) -> None:
        with self._changed:
            self._used -= values.nbytes
            if not self._closed:
                self._spare.append(values)
            self._changed.notify_all()

    def close(self) -> None:
        """Keep no returned buffer from here on."""
        with self._changed:
            self._closed = True
            self._spare.clear()
            self._changed.notify_all()

    def _held(self) -> int:
        return self._used + sum(spare.nbytes for spare in self._spare)
