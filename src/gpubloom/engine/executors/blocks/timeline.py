"""Timeline: how long computing waited in a step, and, when asked for, what every lane did when.

Marks on the GPU are read after the step that made them is over, so that measuring never makes anything wait.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpubloom.engine.executors.blocks.device import Device, Lane, Mark


@dataclass(frozen=True)
class Span:
    """Something that happened, in seconds from the beginning of the recording."""

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
    """One executor's clock."""

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
