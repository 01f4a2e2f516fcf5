"""AdamW on flat host arrays, split among threads. What it computes is stated in adamw.c.

The result depends on neither the number of threads nor the split: no element depends on another.
It does not know which parameters an array holds: weight decay for matrices only is the caller's business.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from torch import Tensor

from gpubloom.engine.optimizer.host.build import CannotBuild
from gpubloom.engine.optimizer.host.fallback import TorchAdamW
from gpubloom.engine.optimizer.host.native import NativeAdamW
from gpubloom.engine.optimizer.host.ranges import Arrays, split
from gpubloom.engine.optimizer.host.step import AdamWStep, Constants


class _Kernel(Protocol):
    def __call__(self, arrays: Arrays, constants: Constants, start: int, end: int) -> None: ...


class HostAdamW:
    """`description` says what computes, and why if it is not the C kernel: announce it."""

    description: str

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"The host AdamW needs at least one thread, not {threads}.")
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="host-adamw")
        self._kernel: _Kernel
        counted = f"{threads} thread{'s' if threads > 1 else ''}"
        try:
            self._kernel = NativeAdamW()
            self.description = f"C, {counted}"
        except CannotBuild as reason:
            self._kernel = TorchAdamW()
            self.description = f"torch ({reason}), {counted}"

    def update(
        self,
        master: Tensor,
        first: Tensor,
        second: Tensor,
        gradient: Tensor,
        copy: Tensor | None,
        step: AdamWStep,
        scale: float,
    ) -> None:
        """One update in place, from any thread; returns when it is done. `scale` multiplies the gradient."""
        arrays = Arrays(master, first, second, gradient, copy)
        constants = Constants.of(step, scale)
        ranges = list(split(len(master), self._threads))
        if len(ranges) <= 1:
            for start, end in ranges:
                self._kernel(arrays, constants, start, end)
            return
        parts = [self._pool.submit(self._kernel, arrays, constants, start, end) for start, end in ranges]
        for part in parts:
            part.result()
