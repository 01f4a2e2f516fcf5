"""WeightFlow: brings each block's weights to the device in time.

A pass announces the order in which it will use blocks. Weights that live on the device are simply there;
streamed ones pass through a few slots, the next ones being sent while the present one is computed with.
A block whose update is not finished is waited for when its weights are sent, and not before.

Invariants: a slot is overwritten only after the compute lane has passed its last use; what a slot holds is
forgotten as soon as the optimizer may change it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device, Mark, Timeline
from gpubloom.engine.executors.blocks.functions import Bound
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.executors.blocks.updates import Updates
from gpubloom.engine.optimizer.encoding import round_into

# No more blocks than this are sent ahead of their use, even if all have buffers of their own.
_AHEAD = 8


class _Slot:
    """A buffer on the device that holds one block's weights at a time, or always the same block's."""

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer
        self.block: int | None = None
        self.filled: Mark | None = None
        self.free: Mark | None = None


class WeightFlow:
    """Weights for one executor."""

    def __init__(
        self, stores: Sequence[BlockStore], device: Device, updates: Updates, timeline: Timeline, slots: int
    ) -> None:
        self._stores = stores
        self._device = device
        self._updates = updates
        self._timeline = timeline
        self._shared = self._make_slots(slots)
        self._own = {
            index: _Slot(device.empty(store.streamed_bytes, torch.uint8))
            for index, store in enumerate(stores)
            if self._needs_own_slot(store)
        }
        decoded = [store.heavy_length for store in stores if store.is_quantized]
        self._decoded = device.empty(max(decoded), stores[0].dtype) if decoded else None
        self._order: list[int] = []
        self._position = 0
        self.bytes_sent = 0
        self.seconds_blocked = 0.0

    def begin(self, order: Sequence[int]) -> None:
        """Announces the blocks of a pass, in the order of their use, and sends the first ones."""
        self._order = list(order)
        self._position = 0
        self._send_ahead()

    @contextmanager
    def use(self, index: int) -> Iterator[Bound]:
        """The next block of the announced order; its weights may be used until the end of the block."""
        assert self._order[self._position] == index
        store, slot = self._stores[index], None
        if not self._rests_on_device(index):
            with self._timeline.waiting():
                self._send_ahead(wait_for_next=True)
                slot = self._slot_of(index)
                if slot is not None:
                    self._device.compute.wait(slot.filled)
        yield store.bound(self._heavy(store, slot))
        if slot is not None:
            slot.free = self._device.compute.mark()
        self._position += 1
        self._send_ahead()

    def send_home(self) -> None:
        """Send the blocks that wait for their update on the device now, not when they are next used."""
        for index in self._updates.waiting_for_device():
            self._send(index, self._own.get(index) or self._spare(()))

    def forget(self) -> None:
        """Mark the sent weights as outdated after an update; frozen ones (with adapters) stay valid."""
        for index, slot in self._own.items():
            if not self._stores[index].has_adapters:
                slot.block = None
        for slot in self._shared:
            if slot.block is not None and not self._stores[slot.block].has_adapters:
                slot.block = None

    def _heavy(self, store: BlockStore, slot: _Slot | None) -> Tensor:
        rested = store.heavy_home if slot is None else slot.buffer
        return store.decode(rested, self._decoded)

    def _send_ahead(self, *, wait_for_next: bool = False) -> None:
        """Sends the next blocks, as many as there are slots that none of them needs.

        Nothing is waited for here but the update of the very next block, and that only when it must be used.
        """
        soon: list[int] = []
        for index in self._order[self._position :]:
            if index in soon or self._rests_on_device(index):
                continue
            passing = sum(each not in self._own for each in soon)
            if len(soon) >= _AHEAD or (index not in self._own and passing == len(self._shared)):
                break
            soon.append(index)
        for index in soon:
            if self._slot_of(index) is None:
                needed = wait_for_next and index == self._order[self._position]
                if not needed and not self._updates.is_done(index):
                    if index in self._own:
                        # Its buffer waits for it; those behind it need not.
                        continue
                    return
                self._send(index, self._own.get(index) or self._spare(soon))

    def _send(self, index: int, slot: _Slot) -> None:
        """Fills a slot with a block's weights."""
        store = self._stores[index]
        started = time.perf_counter()
        self._updates.wait(index)
        self.seconds_blocked += time.perf_counter() - started
        buffer = slot.buffer[: store.streamed_bytes]
        # Nobody need have used what was sent last, and it may have come by another lane.
        free = (slot.free, slot.filled)
        if self._updates.waits_for_device(index):
            copy_home = index not in self._own
            slot.filled = self._updates.through_device(index, buffer, free, copy_home=copy_home)
            self.bytes_sent += sum(tensor.nbytes for tensor in store.state_tensors)
        else:
            slot.filled = self._fill(store, index, buffer, free)
        slot.block = index
        if slot in self._shared:
            # Reused last: by then its present use is over.
            self._shared.remove(slot)
            self._shared.append(slot)

    def _fill(self, store: BlockStore, index: int, buffer: Tensor, free: Sequence[Mark | None]) -> Mark:
        """Orders the weights of a block into a buffer."""
        lane = self._device.compute if store.is_cast else self._device.copy_in
        for mark in free:
            lane.wait(mark)
        with self._timeline.span(lane, "weights", index), lane.active():
            if store.is_cast:
                round_into(buffer.view(store.dtype), store.master)
                return lane.mark()
            lane.wait(self._updates.written(index))
            if store.heavy_home.device == buffer.device:
                # In fp32 what is sent is the master itself, which the compute lane may still be updating.
                lane.wait(self._device.compute.mark())
            buffer.copy_(store.heavy_home, non_blocking=True)
            self.bytes_sent += store.streamed_bytes
        return lane.mark()

    def _spare(self, soon: Sequence[int]) -> _Slot:
        """A slot that holds nothing, or else the one that was filled longest ago and is not needed soon."""
        spare = [slot for slot in self._shared if slot.block is None or slot.block not in soon]
        return min(spare, key=lambda slot: slot.block is not None)

    def _slot_of(self, index: int) -> _Slot | None:
        if index in self._own:
            slot = self._own[index]
            return slot if slot.block == index else None
        return next((slot for slot in self._shared if slot.block == index), None)

    def _rests_on_device(self, index: int) -> bool:
        store = self._stores[index]
        return not (store.is_cast or store.is_streamed or index in self._own)

    def _make_slots(self, count: int) -> list[_Slot]:
        streamed = [
            store.streamed_bytes
            for store in self._stores
            if (store.is_cast or store.is_streamed) and not self._needs_own_slot(store)
        ]
        if not streamed:
            return []
        return [_Slot(self._device.empty(max(streamed), torch.uint8)) for _ in range(count)]

    def _needs_own_slot(self, store: BlockStore) -> bool:
        """Weights that stay on the device from the forward to the backward pass, or are unlike all others."""
        if store.is_cast:
            return False
        if store.is_streamed:
            return store.placement.keep or store.spec.kind in {"embedding", "head"}
        return store.placement.state != "device"
