"""Writes what the agent read as events of the attempt.

One writer per run: it holds the trainer's lock as a follower does, and gives it up as soon as a Reporter of
the script asks for it.
"""

from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any, Self

from gpubloom.agent.progress.course import Point
from gpubloom.traincard.event_queue import DROPPABLE, EventQueue
from gpubloom.traincard.failure import likely_cause
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import RunLock
from gpubloom.traincard.telemetry import Telemetry
from gpubloom.traincard.writer import Writer

_QUEUE = 4_096
_WRITE_SECONDS = 0.5
_TELEMETRY_SECONDS = 10.0
_CLOSE_SECONDS = 5.0


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
        """OSError or RunInUseError: it cannot be written, or somebody else writes."""
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
        fields: dict[str, Any] = {"type": kind, "message": message, "traceback": trace}
        if cause := likely_cause(kind, message):
            fields["cause"], fields["advice"] = cause
        self._put("error", fields)

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
