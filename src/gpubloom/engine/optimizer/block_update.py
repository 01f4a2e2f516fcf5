"""BlockUpdate: one update of a block's state, each tensor by the optimizer that it belongs to.

The same on the device and on the host; only AdamW has a kernel of its own for each. On a CPU both are the
same code, so that every placement gives the same bits.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from gpubloom.engine.optimizer.adafactor import adafactor_update
from gpubloom.engine.optimizer.device_adamw import DeviceAdamW
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.engine.optimizer.moments import AdafactorTensor, AdamWRange, MomentLayout, MuonMatrix
from gpubloom.engine.optimizer.muon import muon_update
from gpubloom.plan import OptimizerConfig


class State(NamedTuple):
    """Flat buffers of one block, all in one memory. The copy is in the precision of computing, or None."""

    master: Tensor
    first: Tensor
    second: Tensor
    gradient: Tensor
    copy: Tensor | None


class BlockUpdate:
    """The optimizer of a run."""

    def __init__(
        self, config: OptimizerConfig, device: torch.device, *, threads: int, compiled: bool
    ) -> None:
        self._momentum = config.momentum
        self._on_host = HostAdamW(threads)
        self._on_device = DeviceAdamW(device, self._on_host, compiled=compiled)

    @property
    def description(self) -> str:
        """What computes updates in host memory."""
        return self._on_host.description

    def together(self) -> AbstractContextManager[None]:
        """Updates on the device that are asked for in here are ordered at its end."""
        return self._on_device.together()

    def prepare(self, step: AdamWStep, device: torch.device) -> None:
        """Puts the numbers of a step where recorded updates find them; AdamW's only."""
        self._on_device.prepare(step, device)

    def on_device(self, layout: MomentLayout, state: State, step: AdamWStep, scale: Tensor) -> None:
        """Ordered on the current stream; nothing waits for `scale`."""
        self._update(layout, state, step, scale, lambda *arrays: self._on_device.update(*arrays, scale))

    def on_host(self, layout: MomentLayout, state: State, step: AdamWStep, scale: float) -> None:
        """From any thread; returns when it is done."""
        self._update(layout, state, step, scale, lambda *arrays: self._on_host.update(*arrays, scale))

    @torch.no_grad()
    def _update(
        self,
        layout: MomentLayout,
        state: State,
        step: AdamWStep,
        scale: Tensor | float,
        adamw: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None, AdamWStep], None],
    ) -> None:
        without_decay = replace(step, weight_decay=0.0)
        for each in layout.updates:
            master, gradient = state.master[each.span], state.gradient[each.span]
            copy = None if state.copy is None else state.copy[each.span]
            if isinstance(each, AdamWRange):
                # Matrices decay, vectors do not.
                decayed = step if each.decays else without_decay
                adamw(master, state.first[each.span], state.second[each.second], gradient, copy, decayed)
                continue
            if isinstance(each, MuonMatrix):
                matrix, momentum = master.view(each.shape), state.first[each.span].view(each.shape)
                muon_update(matrix, momentum, gradient.view(each.shape), step, self._momentum, scale)
            else:
                self._adafactor(each, state, step, scale)
            if copy is not None:
                copy.copy_(master)

    @staticmethod
    def _adafactor(each: AdafactorTensor, state: State, step: AdamWStep, scale: Tensor | float) -> None:
        adafactor_update(
            state.master[each.span].view(each.shape),
            state.second[each.rows],
            None if each.columns is None else state.second[each.columns],
            state.gradient[each.span].view(each.shape),
            replace(step, weight_decay=0.0) if each.columns is None else step,
            scale,
        )
