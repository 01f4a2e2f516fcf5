"""The device that computes and the lanes that run beside it.

On a GPU a lane is a stream of copies that overlaps with computing and is ordered by marks; on a CPU
everything happens at once and a mark means nothing. The executor is written once for both.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from gpubloom.engine.host_memory import host_buffer


class Mark:
    """A point in a lane that another lane, or the host, can wait for."""

    def __init__(self, event: torch.cuda.Event | None) -> None:
        self._event = event

    def wait_on_host(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def seconds_until(self, later: "Mark") -> float:
        """Between two timed marks that have been reached."""
        if self._event is None or later._event is None:
            return 0.0
        milliseconds: float = self._event.elapsed_time(later._event)
        return milliseconds / 1_000


class Lane:
    """Work in order: computing, copying in, or copying out."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream

    def mark(self, *, timed: bool = False) -> Mark:
        if self._stream is None:
            return Mark(None)
        event = torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return Mark(event)

    def wait(self, mark: Mark | None) -> None:
        if self._stream is not None and mark is not None and mark._event is not None:
            self._stream.wait_event(mark._event)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield

    def borrows(self, tensor: Tensor) -> None:
        """Tells the allocator that this lane still reads a tensor of another lane."""
        if self._stream is not None:
            tensor.record_stream(self._stream)


class Device:
    """Where blocks are computed, with its lanes."""

    def __init__(self, device: torch.device) -> None:
        self.torch = device
        self.is_gpu = device.type == "cuda"
        if self.is_gpu:
            self.compute = Lane(torch.cuda.current_stream(device))
            self.copy_in = Lane(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
            self.copy_out = Lane(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        else:
            self.compute = self.copy_in = self.copy_out = Lane(None)

    def name_of(self, lane: Lane) -> str:
        if lane is self.compute:
            return "compute"
        return "copy in" if lane is self.copy_in else "copy out"

    def empty(self, length: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(length, dtype=dtype, device=self.torch)

    def host(self, length: int, dtype: torch.dtype) -> Tensor:
        """Host memory that copies to and from the device without a detour."""
        return host_buffer(length, dtype, pinned=self.is_gpu)
