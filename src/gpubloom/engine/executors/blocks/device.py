"""The device that computes, its lanes of copies, and the timeline of what each lane did.

On a GPU a lane is a CUDA stream that overlaps with computing and is ordered by marks (events); on a CPU
everything happens at once and a mark means nothing. The executor is written once for both.

The timeline measures how long computing waited in a step. Its marks are read after the step is over, so that
measuring never makes anything wait.
"""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

    @property
    def is_reached(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def seconds_until(self, later: "Mark") -> float:
        """Between two timed marks that have been reached."""
        if self._event is None or later._event is None:
            return 0.0
        milliseconds: float = self._event.elapsed_time(later._event)
        return milliseconds / 1_000


class Lane:
    """Work in order: computing, copying weights or states in, updating states, or copying out."""

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
            # A state is six times as long as the weights; in one lane, weights would wait behind it. Its
            # update waits for the gradient norm; in one lane, the next state would wait with it.
            self.state_in = Lane(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
            self.state_update = Lane(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
            self.copy_out = Lane(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        else:
            self.compute = self.copy_in = self.state_in = self.state_update = self.copy_out = Lane(None)

    def name_of(self, lane: Lane) -> str:
        if lane is self.compute:
            return "compute"
        return {self.copy_in: "copy in", self.copy_out: "copy out"}.get(lane, "state in")

    def empty(self, length: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(length, dtype=dtype, device=self.torch)

    def host(self, length: int, dtype: torch.dtype) -> Tensor:
        """Host memory that copies to and from the device without a detour."""
        return host_buffer(length, dtype, pinned=self.is_gpu)


@dataclass(frozen=True)
class Span:
    """One recorded operation, in seconds since the recording began."""

    lane: str
    what: str
    block: int
    begin: float
    end: float


@dataclass
class _Open:
    lane: str
    what: str
    block: int
    begin: Mark
    end: Mark | None = None


class Timeline:
    """Measures what the lanes of one executor do, and how long computing waits."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._recording = False
        self._waits: list[tuple[Mark, Mark]] = []
        self._spans: list[_Open] = []
        self._host: list[Span] = []
        self._origin: Mark | None = None
        self._host_origin = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Between the last thing that was computed and the next: what passes in here was waiting."""
        if not self._device.is_gpu:
            yield
            return
        before = self._device.compute.mark(timed=True)
        yield
        self._waits.append((before, self._device.compute.mark(timed=True)))

    def end_step(self) -> list[tuple[Mark, Mark]]:
        """The waits since the last call, to be measured with `seconds` once they are over."""
        waits, self._waits = self._waits, []
        return waits

    @staticmethod
    def seconds(waits: list[tuple[Mark, Mark]]) -> float:
        """How long the compute lane waited. All marks must have been reached."""
        return sum(begin.seconds_until(end) for begin, end in waits)

    @contextmanager
    def span(self, lane: Lane, what: str, block: int) -> Iterator[None]:
        if not self._recording:
            yield
            return
        name = self._device.name_of(lane)
        entry = _Open(name, what, block, lane.mark(timed=True))
        yield
        entry.end = lane.mark(timed=True)
        self._spans.append(entry)

    @contextmanager
    def host_span(self, what: str, block: int) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self._recording:
            ended = time.perf_counter()
            begin, end = started - self._host_origin, ended - self._host_origin
            self._host.append(Span("host", what, block, begin, end))

    def record(self) -> None:
        """Begins a recording; the device must be idle, so that both clocks start together."""
        self._recording = True
        self._origin = self._device.compute.mark(timed=True)
        self._host_origin = time.perf_counter()

    def recorded(self) -> list[Span]:
        """Ends the recording; the device must be idle again."""
        self._recording = False
        spans, self._spans = self._spans, []
        host, self._host = self._host, []
        assert self._origin is not None
        origin = self._origin
        on_device = [
            Span(
                each.lane,
                each.what,
                each.block,
                origin.seconds_until(each.begin),
                origin.seconds_until(each.end),
            )
            for each in spans
            if each.end is not None
        ]
        return sorted((*on_device, *host), key=lambda span: span.begin)
