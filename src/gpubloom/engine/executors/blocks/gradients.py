"""GradientFlow: a block's gradient, summed over micro-batches and processes, measured, and sent on.

Sums are FP32; what is stored is rounded once to the precision of computing, whatever the placement. The
squared norm is that of what is stored, and norms are added in the order of blocks, so that clipping is exact
and the same for every placement.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device, Mark, Timeline
from gpubloom.engine.executors.blocks.store import BlockStore
from gpubloom.engine.parallel import ALONE, Group

_BUFFERS = 2


class Sum:
    """The accumulated gradient of one block."""

    def __init__(self, flow: "GradientFlow", index: int, total: Tensor) -> None:
        self._flow = flow
        self._index = index
        self._total = total
        self._empty = True

    def add(self, gradients: Sequence[Tensor]) -> None:
        """Gradients of the block's trained tensors, in the order of its layout."""
        layout = self._flow.stores[self._index].trained
        if self._empty:
            layout.write(self._total, gradients)
        else:
            layout.add(self._total, gradients)
        self._empty = False

    def close(self) -> None:
        """The gradient is complete: measure its norm and pass it on to the optimizer."""
        self._flow.finish(self._index, self._total)


class GradientFlow:
    """Gradients of one executor. `several`: a layer's gradient is a sum over micro-batches or processes."""

    def __init__(
        self,
        stores: Sequence[BlockStore],
        device: Device,
        timeline: Timeline,
        *,
        several: bool,
        group: Group = ALONE,
        measured_only: frozenset[int] = frozenset(),
    ) -> None:
        """`measured_only`: blocks whose gradient is computed again when the norm is known."""
        self.stores = stores
        self.measured_only = measured_only
        self._device = device
        self._timeline = timeline
        self._several = several
        self._group = group
        self._squares = device.empty(len(stores), torch.float32)
        # Gradients that rest on the device, of which the norm is taken when all are there.
        self._unmeasured: dict[int, Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._passing: dict[str, list[tuple[Tensor, Mark | None]]] = {}
        self.bytes_sent = 0

    def open(self, index: int) -> Sum:
        store = self.stores[index]
        ends = store.spec.kind in {"embedding", "head"}
        if store.dtype != torch.float32 and (self._several or ends):
            # Layers come one after the other and share a sum; an end's stays open over the whole pass.
            key = store.spec.name if ends else store.spec.kind
            if key not in self._sums:
                self._sums[key] = self._device.empty(store.trained.length, torch.float32)
            return Sum(self, index, self._sums[key])
        return Sum(self, index, self._target(store))

    @torch.no_grad()
    def finish(self, index: int, total: Tensor) -> None:
        store = self.stores[index]
        self._group.sum(total)
        target = self._target(store) if total.dtype != store.dtype else total
        if target is not total:
            target.copy_(total)
        if self._device.is_gpu and store.placement.state != "host":
            self._unmeasured[index] = target
        else:
            self._squares[index] = torch.linalg.vector_norm(target, dtype=torch.float32).square()
        if store.placement.state == "host" and index not in self.measured_only:
            self._send(index, target)

    def norm(self) -> Tensor:
        """The global norm, on the device."""
        squares = self._squares
        if self._unmeasured:
            # All in one kernel: one after the other, each would take longer to start than to run.
            norms = torch._foreach_norm(list(self._unmeasured.values()), 2, torch.float32)
            squares = torch.cat((squares, torch.stack(norms).square()))
        return squares.sum().sqrt()

    def _target(self, store: BlockStore) -> Tensor:
        """Where a gradient rests, or for one that leaves the device, a buffer on its way out."""
        if store.placement.state != "host":
            return store.gradient
        passing = self._passing.setdefault(store.spec.kind, [])
        if len(passing) < _BUFFERS:
            passing.append((self._device.empty(store.trained.length, store.dtype), None))
            return passing[-1][0]
        buffer, sent = passing.pop(0)
        self._device.compute.wait(sent)
        passing.append((buffer, sent))
        return buffer

    def _send(self, index: int, buffer: Tensor) -> None:
        store, lane = self.stores[index], self._device.copy_out
        lane.wait(self._device.compute.mark())
        with self._timeline.span(lane, "gradient", index), lane.active():
            store.gradient.copy_(buffer, non_blocking=True)
        self.bytes_sent += buffer.nbytes
        sent = lane.mark()
        passing = self._passing[store.spec.kind]
        self._passing[store.spec.kind] = [(each, sent if each is buffer else mark) for each, mark in passing]
