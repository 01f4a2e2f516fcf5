"""LayerInputs: inputs of layers that will be computed again, on the device or waiting in host memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device, Mark


class LayerInputs:
    """One step's inputs; each layer's are a list over micro-batches."""

    def __init__(self, device: Device, *, offload: bool) -> None:
        self._device = device
        self._offload = offload
        self._here: dict[int, list[Tensor]] = {}
        self._arriving: dict[int, Mark] = {}
        self._away: dict[int, list[Tensor]] = {}
        self._stored: list[int] = []

    def put(self, layer: int, inputs: Sequence[Tensor]) -> None:
        if not self._offload:
            self._here[layer] = list(inputs)
            return
        if layer not in self._away:
            # Host memory is found once and used in every step.
            self._away[layer] = [
                self._device.host(each.numel(), each.dtype).view(each.shape) for each in inputs
            ]
        lane = self._device.copy_out
        lane.wait(self._device.compute.mark())
        with lane.active():
            for away, each in zip(self._away[layer], inputs, strict=True):
                away.copy_(each, non_blocking=True)
                lane.borrows(each)
        self._arriving[layer] = lane.mark()
        self._stored.append(layer)

    def take(self, layer: int) -> list[Tensor]:
        """A layer's inputs, once; in the reverse order of `put`."""
        if self._offload:
            self._fetch(layer)
            self._stored.remove(layer)
            self._device.compute.wait(self._arriving.pop(layer))
            if self._stored:
                self._fetch(self._stored[-1])
        return self._here.pop(layer)

    def _fetch(self, layer: int) -> None:
        if layer in self._here:
            return
        lane = self._device.copy_in
        lane.wait(self._arriving[layer])
        with lane.active():
            found = [
                torch.empty(away.shape, dtype=away.dtype, device=self._device.torch)
                for away in self._away[layer]
            ]
            for each, away in zip(found, self._away[layer], strict=True):
                each.copy_(away, non_blocking=True)
                self._device.compute.borrows(each)
        self._here[layer] = found
        self._arriving[layer] = lane.mark()
