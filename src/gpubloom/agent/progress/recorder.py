"""From parsed lines to the events of an attempt: `Course` works out the step, `Recorder` writes.

Progress bars start again with every epoch, and lines with numbers often do not say their step; both become
a step that grows, and a total where it can be known. A run has one writer: the recorder holds the trainer's
lock as a follower does, and gives it up as soon as a Reporter of the script asks for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any, Self

from gpubloom.agent.progress.formats import ParsedLine
from gpubloom.traincard.event_queue import DROPPABLE, EventQueue
from gpubloom.traincard.failure import cause_fields, evidence_of_text
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import RunLock
from gpubloom.traincard.telemetry import Telemetry
from gpubloom.traincard.writer import Writer

_MOST_SERIES = 100
_QUEUE = 4_096
_WRITE_SECONDS = 0.5
_TELEMETRY_SECONDS = 10.0
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Point:
    """Values of a step, and how far the run is."""

    step: int
    values: dict[str, float]
    total: int | None
    epoch: float | None
    epochs: float | None


@dataclass
class _Bar:
    """The bar that shows the training."""

    label: str
    total: int
    step: int = 0
    finished: int = 0
    """Bars like this one that came to their end before."""
    told_loss: bool = False


@dataclass
class Course:
    """Fed with what lines say; `take` returns what is new."""

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: float | None = None
    facts: dict[str, float] = field(default_factory=dict)
    _bar: _Bar | None = None
    _lines: int = 0
    _names: set[str] = field(default_factory=set)
    _waiting: dict[str, float] = field(default_factory=dict)

    def take(self, said: ParsedLine) -> Point | None:
        """None: nothing to record, only something to remember."""
        self.facts.update(said.facts)
        if said.epochs:
            self.epochs = said.epochs
        if said.bar and said.step is not None and said.total:
            if not self._follow_bar(said):
                return None
        elif said.step is not None:
            self.step = said.step
            self.total = said.total or self.total
        elif said.total:
            self.total = said.total
        if said.epoch is not None and not said.from_zero:
            self.epoch = said.epoch
        values = self._limited(said.values)
        if not said.bar and said.step is None:
            return self._without_step(said, values)
        if self.step is None:
            return None
        if said.bar:
            values = {**self._waiting, **values}
            self._waiting = {}
        return self._point(values)

    def rest(self) -> Point | None:
        """What still waited for a bar when the output ended."""
        waiting, self._waiting = self._waiting, {}
        return self._point(waiting) if waiting and self.step is not None else None

    def _point(self, values: dict[str, float]) -> Point:
        assert self.step is not None
        return Point(self.step, values, self.total, self.epoch, self.epochs)

    def _follow_bar(self, said: ParsedLine) -> bool:
        """False: this bar is another one, an evaluation's for example."""
        assert said.step is not None
        assert said.total is not None
        bar, has_loss = self._bar, any(name.endswith("loss") for name in said.values)
        if bar is None or not (bar.label == said.label and bar.total == said.total):
            if bar is not None and not _is_superseded(bar, has_loss):
                return False
            bar = self._bar = _Bar(said.label, said.total)
        bar.told_loss |= has_loss
        if said.step < bar.step and said.epoch is None and bar.step >= bar.total:
            # The same bar from its beginning: the next epoch.
            bar.finished += 1
        bar.step = said.step
        before = bar.finished
        epoch = said.epoch if said.epoch is not None else self.epoch
        if epoch is not None and (said.epoch is not None or bar.label == "keras"):
            before = max(0, int(epoch) - (0 if said.from_zero else 1))
            self.epoch = epoch + 1 if said.from_zero else epoch
        self.step = before * bar.total + said.step
        if self.epochs:
            self.total = int(self.epochs) * bar.total
        elif before == 0 and said.epoch is None:
            self.total = bar.total
        elif self.total is not None and self.step > self.total:
            # More epochs than one, and nobody says how many.
            self.total = None
        return True

    def _without_step(self, said: ParsedLine, values: dict[str, float]) -> Point | None:
        if not values:
            return None
        if said.epoch is not None and said.label == "plain":
            # A line for each epoch: the epoch is the step.
            self.step = int(said.epoch)
            self.total = int(said.epochs) if said.epochs else self.total
        elif self._bar is not None:
            # Numbers beside a bar: it is the training's for good. Where they belong it says when it is drawn
            # again, right after them.
            self._bar.told_loss = True
            earlier, self._waiting = self._waiting, values
            return self._point(earlier) if earlier else None
        elif self.step is None or self._lines:
            self._lines += 1
            self.step = self._lines
        return self._point(values)

    def _limited(self, values: dict[str, float]) -> dict[str, float]:
        known = {}
        for name, value in values.items():
            if name in self._names or len(self._names) < _MOST_SERIES:
                self._names.add(name)
                known[name] = value
        return known


def _is_superseded(bar: _Bar, has_loss: bool) -> bool:
    """Whether another bar replaces the current one: one with a loss, or any bar after one without values."""
    return not bar.told_loss and (has_loss or bar.step >= bar.total)


class Recorder:
    """Opened at the first progress that is recognised; what telemetry finds goes the same way."""

    def __init__(self, run_dir: Path, lock: RunLock, queue: EventQueue, writer: Writer) -> None:
        self.run_dir = run_dir
        self._lock = lock
        self._queue = queue
        self._writer = writer
        self._telemetry = Telemetry(self, _TELEMETRY_SECONDS)
        self._on = True

    @classmethod
    def open(cls, run_dir: Path, attempt: int) -> Self:
        """Raises OSError if the run cannot be written, and RunInUseError if another process writes it."""
        if not run_dir.is_dir():
            raise FileNotFoundError(f"{run_dir} was deleted")
        lock = RunLock.acquire(run_dir, follows=True)
        queue = EventQueue(_QUEUE)
        writer = Writer(
            RunFiles(run_dir),
            queue,
            rank=0,
            world_size=1,
            attempt=attempt,
            lock=lock,
            interval=_WRITE_SECONDS,
        )
        try:
            writer.open()
        except BaseException:
            lock.release()
            raise
        writer.start()
        recorder = cls(run_dir, lock, queue, writer)
        recorder.describe({"followed_by": "agent"})
        recorder._telemetry.start()
        return recorder

    @property
    def is_wanted(self) -> bool:
        """Whether the script has a Reporter after all, and waits."""
        return self._lock.is_wanted

    def point(self, point: Point) -> None:
        if point.values:
            self._put("metrics", point.values, point.step)
        fields = {"total_steps": point.total, "epoch": point.epoch, "epochs": point.epochs}
        self._put("progress", fields, point.step)

    def values(self, step: int, values: Mapping[str, float]) -> None:
        self._put("metrics", values, step)

    def resumed(self, step: int) -> None:
        self._put("resumed", {"from_step": step})

    def checkpoint(self, path: str, size: int, step: int) -> None:
        self._put("checkpoint", {"path": path, "size": size, "metrics": None, "best": None}, step)

    def describe(self, facts: Mapping[str, Any]) -> None:
        self._put("describe", {"facts": dict(facts)})

    def system(self, values: Mapping[str, Any]) -> None:
        # The agent's own size says nothing about the training.
        self._put("system", {"values": {name: v for name, v in values.items() if name != "process/ram"}})

    def error(self, kind: str, message: str, trace: str) -> None:
        causes = cause_fields([evidence_of_text(kind, message)])
        self._put("error", {"type": kind, "message": message, "traceback": trace, **causes})

    def end(self, status: str, message: str | None) -> None:
        self._put("end", {"status": status, "message": message})

    def close(self) -> None:
        """Writes what is left and lets go of the run."""
        self._on = False
        self._telemetry.stop()
        self._writer.close(_CLOSE_SECONDS)
        self._lock.release()

    def _put(self, kind: str, fields: Mapping[str, Any], step: int | None = None) -> None:
        if self._on:
            put = self._queue.put if kind in DROPPABLE else self._queue.put_kept
            put((kind, time(), step, dict(fields), None, None))
