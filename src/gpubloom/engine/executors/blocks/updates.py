"""Updates: the optimizer's step for every block, where its state lives.

Clipping needs the whole backward pass, so nothing is updated before it. From then on states on the device are
updated at once; states in host memory in forward order, by the CPU while the next forward pass already runs,
or on their way through the device when their weights are next needed. Nobody uses a block's weights before
its own update is done, and nobody waits for any other. Blocks whose gradients are computed twice go first:
the second backward pass waits for the memory that their gradients are in.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device, Mark, Timeline
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.optimizer.block_update import BlockUpdate, State
from gpubloom.engine.optimizer.device_adamw import UpdateProgram
from gpubloom.engine.optimizer.encoding import Flat
from gpubloom.engine.optimizer.host import AdamWStep
from gpubloom.engine.optimizer.moments import PARTS
from gpubloom.plan.memory import PASSING_STATES

# While the last cores finish one block, the others begin with the next.
_BLOCKS_AT_ONCE = 2


@dataclass(frozen=True)
class _PendingUpdate:
    """One step's update: what to do, and the factor that clipping asks for."""

    step: AdamWStep
    scale: Tensor
    scale_on_host: Tensor
    scale_ready: Mark
    arrived: Mark
    # Called before a block is changed: returns once no snapshot needs its present state.
    may_change: Callable[[int], None]


@dataclass(frozen=True, eq=False)
class HostUpdate:
    """One block for the CPU to update. `is_urgent`: the device waits for it."""

    index: int
    order: _PendingUpdate
    done: threading.Event
    is_urgent: bool


class HostQueue:
    """Blocks that wait for the CPU: urgent ones first, then those that came first.

    A block whose gradient is still on its way to the host lets the others go first.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[HostUpdate] = []
        self._closed = False

    def put(self, update: HostUpdate) -> None:
        with self._changed:
            self._waiting.append(update)
            self._changed.notify()

    def close(self) -> None:
        """Close the queue: `take` returns what is left, and then None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> HostUpdate | None:
        """The next one, as soon as there is one; its gradient may still have to be waited for."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            chosen = min(
                self._waiting, key=lambda each: (not each.order.arrived.is_reached, not each.is_urgent)
            )
            self._waiting.remove(chosen)
            return chosen


class _Staging:
    """A device buffer for the state of one block at a time, of any of `stores`."""

    def __init__(self, device: Device, stores: Sequence[BlockStore]) -> None:
        self._tensors = [
            device.empty(max(map(len, tensors)), tensors[0].dtype)
            for tensors in zip(*(store.state_tensors for store in stores), strict=True)
        ]
        longest = max(store.trained.length for store in stores)
        self._copy = device.empty(0 if stores[0].is_split else longest, stores[0].dtype)
        self.free: Mark | None = None

    def state(self, store: BlockStore) -> tuple[list[Tensor], State, Tensor]:
        """Room for the tensors of one block's state, the state in it, and its weights for computing."""
        tensors = [room[: len(held)] for room, held in zip(self._tensors, store.state_tensors, strict=True)]
        left = iter(tensors)
        parts = [
            Flat(flat.encoding, tuple(next(left) for _ in flat.tensors), roots=flat.roots)
            for flat in (store.state[part] for part in PARTS)
        ]
        copy = None if store.is_split else self._copy[: store.trained.length]
        return (
            tensors,
            State(parts[0], parts[1], parts[2], store.gradient, copy),
            tensors[0] if copy is None else copy,
        )


class Updates:
    """The optimizer of one executor."""

    def __init__(
        self,
        stores: Sequence[BlockStore],
        device: Device,
        optimizer: BlockUpdate,
        timeline: Timeline,
    ) -> None:
        self._stores = stores
        self._device = device
        self._optimizer = optimizer
        self._timeline = timeline
        self._done = [threading.Event() for _ in stores]
        for done in self._done:
            done.set()
        self._through_device: dict[int, _PendingUpdate] = {}
        self._written: dict[int, Mark] = {}
        self._problem: BaseException | None = None
        self.may_change: Callable[[int], None] = lambda index: None
        linked = [store for store in stores if store.placement.state == "link"]
        self._staging = [_Staging(device, linked) for _ in range(PASSING_STATES if linked else 0)]
        self._queue: HostQueue | None = None
        if device.is_gpu and any(store.placement.state == "host" for store in stores):
            self._queue = HostQueue()
            for _ in range(_BLOCKS_AT_ONCE):
                threading.Thread(target=self._work, name="host-optimizer", daemon=True).start()

    def order(
        self, step: AdamWStep, scale: Tensor, later: frozenset[int] = frozenset()
    ) -> Callable[[int], None]:
        """Updates all blocks with the gradients they hold, multiplied by `scale` (on the device).

        What is returned orders the update of a block that is in `later`, when its gradient is there.
        """
        device = self._device
        if all(store.placement.state == "device" for store in self._stores):
            assert not later
            self._update_all_on_device(step, scale)
            return lambda index: None
        scale_ready = device.compute.mark()
        device.copy_out.wait(scale_ready)
        # Pinned: a copy into any other memory would make this thread wait for the whole lane.
        scale_on_host = torch.empty((), pin_memory=device.is_gpu)
        with device.copy_out.active():
            scale_on_host.copy_(scale, non_blocking=True)
        device.copy_out.borrows(scale)
        # Updates on the way through the device read it when the last order may already be forgotten.
        device.state_update.borrows(scale)
        order = _PendingUpdate(
            step, scale, scale_on_host, scale_ready, device.copy_out.mark(), self.may_change
        )
        with self._optimizer.together():
            for index, store in enumerate(self._stores):
                if store.trained.length and index not in later:
                    self._order_block(index, store, order)
        return lambda index: self._order_block(
            index, self._stores[index], replace(order, arrived=device.copy_out.mark()), is_urgent=True
        )

    def _update_all_on_device(self, step: AdamWStep, scale: Tensor) -> None:
        """Update all blocks on the device, without waiting for the scale."""
        self.wait_until_unneeded()
        with self._optimizer.together():
            for index, store in enumerate(self._stores):
                if store.trained.length:
                    self._update_on_device(index, step, scale)

    def program(self, step: AdamWStep) -> UpdateProgram | None:
        """The one program that updates all blocks on the device, if they are all there."""
        if any(store.placement.state != "device" for store in self._stores):
            return None
        scale = torch.empty((), device=self._device.torch)

        def order() -> None:
            for index, store in enumerate(self._stores):
                if store.trained.length:
                    self._update_on_device(index, step, scale)

        return self._optimizer.program_of(order)

    def wait_until_unneeded(self) -> None:
        """Wait until no snapshot needs the present state of any block."""
        for index in range(len(self._stores)):
            self.may_change(index)

    def _order_block(
        self, index: int, store: BlockStore, order: _PendingUpdate, *, is_urgent: bool = False
    ) -> None:
        match store.placement.state:
            case "device":
                order.may_change(index)
                self._update_on_device(index, order.step, order.scale)
            case "link":
                self._through_device[index] = order
            case "host" if self._queue is None:
                self._update_on_host(index, order)
            case "host":
                # A new event: threads that wait for the previous update must not wait for this one.
                self._done[index] = threading.Event()
                self._queue.put(HostUpdate(index, order, self._done[index], is_urgent))

    def is_done(self, index: int) -> bool:
        """Whether `wait` would return at once."""
        return self._done[index].is_set()

    def wait(self, index: int) -> None:
        """Wait until a block's weights in host memory are those of the last update."""
        self._done[index].wait()
        self._raise_problem()

    def so_far(self) -> Callable[[int], None]:
        """Waits, in any thread, until a block is at home with what was ordered up to this moment.

        Blocks that are updated on their way through the device must have been sent.
        """
        assert not self._through_device
        done, written, computed = list(self._done), dict(self._written), self._device.compute.mark()

        def wait(index: int) -> None:
            done[index].wait()
            self._raise_problem()
            computed.wait_on_host()
            if index in written:
                written[index].wait_on_host()

        return wait

    def waits_for_device(self, index: int) -> bool:
        """Whether a block is updated on the device when it is next sent there."""
        return index in self._through_device

    def waiting_for_device(self) -> list[int]:
        """All such blocks."""
        return list(self._through_device)

    def written(self, index: int) -> Mark | None:
        """When the device will have written a block's weights back to host memory."""
        return self._written.get(index)

    def through_device(
        self, index: int, weights: Tensor, free: Sequence[Mark | None], *, copy_home: bool
    ) -> Mark:
        """Update a block that waits for it on the device; returns when its new weights are in `weights`.

        `free`: from when on they may be overwritten; the state comes before. The copy in the precision of
        computing goes home only if somebody will send it from there again.
        """
        order = self._through_device.pop(index)
        order.may_change(index)
        store, staging, lane = self._stores[index], self._staging.pop(0), self._device.state_in
        self._staging.append(staging)
        tensors, state, computed_with = staging.state(store)
        at_home = store.state_tensors
        lane.wait(staging.free)
        lane.wait(self._written.get(index))
        with self._timeline.span(lane, "state", index), lane.active():
            torch._foreach_copy_(tensors, at_home, non_blocking=True)
        arrived, lane = lane.mark(), self._device.state_update
        for mark in (arrived, order.scale_ready, *free):
            lane.wait(mark)
        with lane.active():
            self._optimizer.on_device(store.moments, state, order.step, order.scale)
            weights.view(store.dtype).copy_(computed_with)
        filled, out = lane.mark(), self._device.copy_out
        out.wait(filled)
        with self._timeline.span(out, "state", index), out.active():
            torch._foreach_copy_(at_home, tensors, non_blocking=True)
            if copy_home and store.copy is not None:
                store.copy.copy_(computed_with, non_blocking=True)
        staging.free = self._written[index] = out.mark()
        return filled

    def settle(self) -> None:
        """Wait until every block is updated and copied back."""
        for index, store in enumerate(self._stores):
            if index in self._through_device:
                spare = self._device.empty(store.streamed_bytes, torch.uint8)
                # Made by the compute lane, used by another.
                self.through_device(index, spare, [self._device.compute.mark()], copy_home=True)
                self._device.state_update.borrows(spare)
            self.wait(index)
        self._device.copy_out.mark().wait_on_host()

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()

    def _update_on_device(self, index: int, step: AdamWStep, scale: Tensor) -> None:
        store = self._stores[index]
        copy = store.copy
        if store.has_adapters:
            copy = store.light if store.light is not store.master else None
        with self._timeline.span(self._device.compute, "update", index):
            self._optimizer.on_device(store.moments, _state_of(store, copy), step, scale)

    def _update_on_host(self, index: int, order: _PendingUpdate) -> None:
        order.may_change(index)
        store = self._stores[index]
        state = _state_of(store, store.copy)
        with self._timeline.host_span("update", index):
            self._optimizer.on_host(store.moments, state, order.step, float(order.scale_on_host))

    def _work(self) -> None:
        assert self._queue is not None
        while (update := self._queue.take()) is not None:
            try:
                update.order.arrived.wait_on_host()
                self._update_on_host(update.index, update.order)
            except BaseException as problem:  # noqa: BLE001 - raised again by whoever waits for the block
                self._problem = problem
            update.done.set()

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise RuntimeError(
                "The host optimizer failed, so the weights of this run cannot be used."
            ) from self._problem


def _state_of(store: BlockStore, copy: Tensor | None) -> State:
    master, first, second = (store.state[part] for part in PARTS)
    return State(master, first, second, store.gradient, copy)
