"""BlockUpdate: one update of a block's state, each tensor by the optimizer that it belongs to.

The same on the device and on the host; only AdamW has a kernel of its own for each. On a CPU both are the
same code, so that every placement gives the same bits.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpubloom.engine.optimizer.adafactor import adafactor_update
from gpubloom.engine.optimizer.device_adamw import DeviceAdamW, UpdateProgram
from gpubloom.engine.optimizer.encoding import Flat, round_into
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.engine.optimizer.moments import AdamWRange, MomentLayout, MuonMatrix
from gpubloom.engine.optimizer.muon import muon_update
from gpubloom.plan import OptimizerConfig


class State(NamedTuple):
    """Flat arrays of one block, all in one memory. The copy is in the precision of computing, or None."""

    master: Flat
    first: Flat
    second: Flat
    gradient: Tensor
    copy: Tensor | None


class BlockUpdate:
    """The optimizer of a run."""

    def __init__(
        self, config: OptimizerConfig, device: torch.device, *, threads: int, compiled: bool
    ) -> None:
        self._name, self._state = config.name, config.state
        self._momentum = config.momentum
        self._on_host = HostAdamW(threads)
        self._on_device = DeviceAdamW(device, self._on_host, compiled=compiled)

    @property
    def description(self) -> str:
        """What computes updates in host memory."""
        return self._on_host.description

    @property
    def may_be_recorded(self) -> bool:
        """Whether all that changes from step to step is data on the device."""
        return self._name == "adamw" and self._state == "fp32"

    def use_compiled(self) -> None:
        """From here on updates on a GPU are compiled."""
        self._on_device.use_compiled()

    def program_of(self, order: Callable[[], object]) -> UpdateProgram | None:
        """The one program for the updates on the device that `order` asks for; nothing is updated."""
        return self._on_device.program_of(order) if self.may_be_recorded else None

    def prepare(self, step: AdamWStep, device: torch.device) -> None:
        """Before a recorded update is run."""
        self._on_device.prepare(step, device)

    def together(self) -> AbstractContextManager[None]:
        """Updates on the device that are asked for in here may be one program."""
        return self._on_device.together()

    def on_device(self, layout: MomentLayout, state: State, step: AdamWStep, scale: Tensor) -> None:
        """Ordered on the current stream; nothing waits for `scale`."""
        self._update(layout, state, step, scale, self._on_device)

    def on_host(self, layout: MomentLayout, state: State, step: AdamWStep, scale: float) -> None:
        """From any thread; returns when it is done."""
        self._update(layout, state, step, scale, self._on_host)

    @torch.no_grad()
    def _update(
        self,
        layout: MomentLayout,
        state: State,
        step: AdamWStep,
        # A tensor for the device, a number for the host.
        scale: Any,
        adamw: DeviceAdamW | HostAdamW,
    ) -> None:
        # Matrices decay, vectors do not.
        without_decay = replace(step, weight_decay=0.0)
        for each in layout.updates:
            if isinstance(each, AdamWRange):
                found, own = _part(state, each), step if each.decays else without_decay
                if found.is_fp32:
                    adamw.update(*found.tensors, found.gradient, found.copy, own, scale)
                else:
                    adamw.update_packed(
                        *found.arrays, found.gradient, found.copy, own, scale, each.span.start
                    )
                continue
            master, gradient = state.master.part(each.span), state.gradient[each.span]
            if isinstance(each, MuonMatrix):
                momentum = state.first.tensors[0][each.span].view(each.shape)
                values = master.read()
                matrix = values.view(each.shape)
                muon_update(matrix, momentum, gradient.view(each.shape), step, self._momentum, scale)
                master.write(values)
            else:
                squares = state.second.tensors[0]
                columns = None if each.columns is None else squares[each.columns]
                own = without_decay if columns is None else step
                adafactor_update(master, each.shape, squares[each.rows], columns, gradient, own, scale)
            if state.copy is not None:
                round_into(state.copy[each.span], master.read())


class _Part(NamedTuple):
    """What AdamW updates at once."""

    arrays: tuple[Flat, Flat, Flat]
    gradient: Tensor
    copy: Tensor | None

    @property
    def is_fp32(self) -> bool:
        return all(flat.encoding == "fp32" for flat in self.arrays)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        master, first, second = (flat.tensors[0] for flat in self.arrays)
        return master, first, second


def _part(state: State, span: AdamWRange) -> _Part:
    arrays = state.master.part(span.span), state.first.part(span.span), state.second.part(span.second)
    copy = None if state.copy is None else state.copy[span.span]
    return _Part(arrays, state.gradient[span.span], copy)
