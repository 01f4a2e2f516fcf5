"""Reading: what a run's events add up to, for anybody who looks at it; and a search through its whole log.

A fold over the reader's events in bounded memory: curves in buckets, the last lines of the log, the last
minutes of what diagnosis looks at. Long histories come condensed, so opening a run does not mean parsing it.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Self

from gpubloom.traincard.checkpoints import Checkpoints
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.lock import HAS_FLOCK, RunLock
from gpubloom.traincard.number_encoding import encode_number
from gpubloom.traincard.ranks import RankReading
from gpubloom.traincard.reader import Reader, RunEvent
from gpubloom.traincard.safe_paths import open_plain
from gpubloom.traincard.samples import Samples
from gpubloom.traincard.series import MOST_BUCKETS, Curve, Curves, points_by_series
from gpubloom.traincard.state import RunState
from gpubloom.traincard.what_ran import merge

_BATCH_BYTES = 1 << 20
_LOG_LINES = 1000
_ERRORS = 20
_WARNINGS = 20
# A page that is opened once reads a shorter run whole.
_READ_WHOLE_BYTES = 16_000_000
_REMOVED_CHECKPOINTS = 200
_RECENT_POINTS = 256
_RECENT_SERIES = 100
_RECENT_LOOKS = 120
_WATCHED = ("loss", "grad_norm", "step_seconds", "data_seconds")

_OUTPUT_BYTES = 64 * 1024
_OUTPUT_LINES = 200


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log."""

    t: float
    rank: int
    attempt: int
    level: str
    line: str
    # What the line means as a finding: kind, severity, next_step.
    finding: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Attempt:
    """One start of the run, as rank 0 tells it."""

    attempt: int
    started_at: float | None = None
    last_t: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    resumed_from_step: int | None = None
    status: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Discontinuity:
    """Where a restart interrupts the curves."""

    attempt: int
    step: int | None
    previous_step: int | None
    repeated_steps: int
    reason: str
    t: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """A reported value that diagnosis looks at."""

    step: float
    value: float
    t: float


class Reading:
    """A run as it stands; `update` takes in what is new. Writes nothing."""

    def __init__(
        self, run_dir: str | os.PathLike[str], *, most_buckets: int = MOST_BUCKETS, condensed: bool = True
    ) -> None:
        """`condensed`: read the history of long runs in buckets, at a fraction of the time."""
        self.run_dir = Path(run_dir)
        self._files = RunFiles(run_dir)
        self._reader = Reader(run_dir, condensed=condensed)
        self._begun_at = (time.time(), time.monotonic())
        self._is_first = True
        # By attempt and rank: the number of the last event that was taken in.
        self._taken: dict[tuple[int, int], int] = {}
        self.state = RunState()
        self.curves = Curves(rank=None, most=most_buckets)
        self.attempts: dict[int, Attempt] = {}
        self.ranks: dict[int, RankReading] = {}
        self.saved = Checkpoints()
        self.removed_checkpoints: deque[dict[str, Any]] = deque(maxlen=_REMOVED_CHECKPOINTS)
        self.log: deque[LogLine] = deque(maxlen=_LOG_LINES)
        self.log_total = 0
        self.log_errors = 0
        self.warnings: dict[str, LogLine] = {}
        """The first warnings and errors of the log by their text: a restart repeats them."""
        self.errors: deque[dict[str, Any]] = deque(maxlen=_ERRORS)
        self.recent: dict[str, deque[Point]] = {}
        """The last values of rank 0's losses, gradient norms and step times."""
        self.looks: dict[int, deque[tuple[float, Mapping[str, Any]]]] = {}
        """The last telemetry of each rank that tells any: time and values."""
        self.what_ran: dict[str, Any] = {}
        """Commit, command line, packages, machine, configs and datasets, as rank 0 recorded them."""
        self.samples = Samples()
        self.facts: dict[int, dict[str, Any]] = {}
        """What each rank described; rank 0's is also in `state`."""

    @classmethod
    def of_page(cls, run_dir: Path, *, most_buckets: int) -> Self:
        """For a page that is zoomed: only long runs are read in buckets."""
        size = sum(file.stat().st_size for file in (run_dir / "traincard").rglob("*") if file.is_file())
        return cls(run_dir, most_buckets=most_buckets, condensed=size > _READ_WHOLE_BYTES)

    def now(self) -> float:
        """The observer's clock: seconds since 1970 when it began, and from then on never backwards."""
        wall_time, monotonic = self._begun_at
        return wall_time + time.monotonic() - monotonic

    def update(self) -> bool:
        """Read all that is new; returns whether there was anything."""
        found = False
        now = self.now()
        # Asked before reading: what a process that ended meanwhile said last is then read, and it counts as
        # ended, not as dead.
        there = self.find_processes()
        while events := self._reader.read_new(_BATCH_BYTES):
            found = True
            self._take_in(events, now)
            # What comes from now on is the next update's: looking for files again costs as much as reading.
            if self._reader.is_caught_up:
                break
        if self._is_first:
            self._is_first = not found
            for reading in self.ranks.values():
                reading.seen_before(self._age(reading, now))
            there = self.find_processes()
            # A process that ended between reading and asking has said its last words in between.
            self._take_in(self._reader.read_new(_BATCH_BYTES), now)
        self.note_processes(there)
        return found

    def take_in(self, events: Sequence[RunEvent]) -> None:
        """Takes in what somebody else has read of this run, in place of `update`; known events are skipped.

        Processes have to be asked for before the events are read, and noted afterwards: one that ended
        meanwhile has then said so, and counts as ended, not as dead.
        """
        new = [event for event in events if event.seq > self._taken.get((event.attempt, event.rank), -1)]
        self._take_in(new, self.now())
        self._is_first = self._is_first and not new

    def note_processes(self, there: Mapping[tuple[int, int | None], bool]) -> None:
        """Of every rank and process id that `find_processes` has found: whether it was there."""
        for (rank, pid), answer in there.items():
            if self.ranks[rank].pid == pid:
                self.ranks[rank].process_is_there = answer

    @property
    def cursor(self) -> dict[str, int]:
        """Up to where events were taken in: a Reader with this cursor goes on from there."""
        return self._reader.cursor

    @property
    def damaged_lines(self) -> int:
        return self._reader.damaged_lines

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints that there are, oldest first."""
        return self.saved.entries

    @property
    def best_checkpoint(self) -> str | None:
        return self.saved.best()

    @property
    def status(self) -> str:
        """`running`, `killed` (says running, but its process is gone), or what the last `end` said."""
        main = self.ranks.get(0)
        if self.state.status == "running" and main is not None and main.life(self.now()) == "dead":
            return "killed"
        return self.state.status

    @property
    def discontinuities(self) -> list[Discontinuity]:
        """One for every restart, in order."""
        found = []
        attempts = [self.attempts[number] for number in sorted(self.attempts)]
        for before, after in pairwise(attempts):
            reason = before.status or "killed"
            if before.status == "failed" and before.message:
                reason = f"failed: {before.message}"
            resumed, reached = after.resumed_from_step, before.last_step
            repeated = 0 if reached is None else max(0, reached - (resumed or 0))
            found.append(Discontinuity(after.attempt, resumed, reached, repeated, reason, after.started_at))
        return found

    def add(self, event: RunEvent, now: float | None = None) -> None:
        """Takes in one event."""
        self._take_in([event], self.now() if now is None else now)

    def _take_in(self, events: list[RunEvent], seen_at: float) -> None:
        """Stretch by stretch: what is done for every value is done once for a series."""
        for (attempt, rank, condensed), stretch in groupby(events, key=_stretch):
            some = list(stretch)
            self._taken[attempt, rank] = some[-1].seq
            if condensed:
                for event in some:
                    self.curves.add(event)
                    self._add_condensed(event, seen_at)
                continue
            records = [event.fields for event in some]
            points = points_by_series(records)
            self.curves.add_points(rank, attempt, points)
            if rank == 0:
                self.state.apply_all(records)
            for kind, alike in groupby(some, key=lambda event: event.kind):
                if kind == "metric":
                    self._add_metrics(list(alike), seen_at)
                    continue
                for event in alike:
                    self._add(event, seen_at)
                    if kind == "system":
                        self._look(event)
            for name, (x, values, times) in points.items():
                if name.endswith(_WATCHED) and not name.startswith("system/"):
                    self._watch(rank, name, x, values, times)

    def _add(self, event: RunEvent, seen_at: float) -> None:
        if event.rank not in self.ranks:
            self.ranks[event.rank] = RankReading(event.rank)
        self.ranks[event.rank].add(event, seen_at)
        if event.rank == 0:
            self._add_to_attempt(event)
            if event.kind == "checkpoint":
                self.saved.add(event.fields, event.attempt)
            elif event.kind == "sample":
                self.samples.add(event.fields)
            elif event.kind == "ran":
                self.what_ran = merge(self.what_ran, event.fields)
            elif event.kind == "checkpoint_removed":
                path = event.fields.get("path")
                self.removed_checkpoints.extend(e for e in self.saved.entries if e["path"] == path)
                self.saved.remove(str(path))
        if event.kind == "describe":
            self.facts.setdefault(event.rank, {}).update(event.fields.get("facts") or {})
        elif event.kind == "log":
            level = str(event.fields.get("level", "info"))
            line = str(event.fields.get("line", ""))
            meant = event.fields.get("finding")
            finding = meant if isinstance(meant, dict) else None
            self.log.append(LogLine(event.t, event.rank, event.attempt, level, line, finding))
            if level in {"warning", "error"} and len(self.warnings) < _WARNINGS:
                self.warnings.setdefault(line, self.log[-1])
            self.log_total += 1
            self.log_errors += level == "error"
        elif event.kind == "error":
            where = {
                "rank": event.rank,
                "attempt": event.attempt,
                "reached_step": self.ranks[event.rank].step,
            }
            self.errors.append({**event.fields, **where})

    def _add_metrics(self, events: list[RunEvent], seen_at: float) -> None:
        """Of metrics in a row the last says where the run is; the others only how far it was."""
        self._add(events[-1], seen_at)
        if events[0].rank == 0 and (steps := [event.step for event in events if event.step is not None]):
            attempt = self.attempts[events[0].attempt]
            self._reached(attempt, min(steps))
            self._reached(attempt, max(steps))

    def _add_to_attempt(self, event: RunEvent) -> None:
        attempt = self.attempts.setdefault(event.attempt, Attempt(event.attempt))
        attempt.last_t = event.t
        if event.kind == "start":
            attempt.started_at = attempt.started_at or event.t
            if not event.fields.get("continues"):
                attempt.status = attempt.message = None
        elif event.kind == "resumed":
            attempt.resumed_from_step = event.fields.get("from_step")
        elif event.kind == "end":
            attempt.status = str(event.fields.get("status", "ended"))
            attempt.message = event.fields.get("message")
        elif event.kind in {"metric", "progress"} and event.step is not None:
            self._reached(attempt, event.step)

    @staticmethod
    def _reached(attempt: Attempt, step: int) -> None:
        attempt.first_step = step if attempt.first_step is None else min(step, attempt.first_step)
        attempt.last_step = step if attempt.last_step is None else max(step, attempt.last_step)

    def _look(self, event: RunEvent) -> None:
        looks = self.looks.setdefault(event.rank, deque(maxlen=_RECENT_LOOKS))
        looks.append((event.t, event.fields.get("values") or {}))

    def _watch(
        self, rank: int, name: str, x: Sequence[float], values: Sequence[float], times: Sequence[float]
    ) -> None:
        last = slice(-_RECENT_POINTS, None)
        if name.endswith("step_seconds"):
            self.ranks[rank].step_seconds.extend(value for value in values[last] if value == value)
        if rank == 0 and (name in self.recent or len(self.recent) < _RECENT_SERIES):
            recent = self.recent.setdefault(name, deque(maxlen=_RECENT_POINTS))
            recent.extend(map(Point, x[last], values[last], times[last]))

    def _add_condensed(self, event: RunEvent, seen_at: float) -> None:
        if event.rank == 0:
            self.state.apply_all(event.fields["events"])
        for fields in event.fields["events"]:
            kept = RunEvent(
                event.attempt,
                event.rank,
                int(fields["seq"]),
                float(fields["t"]),
                str(fields["kind"]),
                fields.get("step"),
                fields,
            )
            self._add(kept, seen_at)
            if kept.kind == "system":
                self._look(kept)
        self.log_total += int(event.fields.get("log_lines_left_out") or 0)
        self.log_errors += int(event.fields.get("log_errors_left_out") or 0)
        for name in event.fields["series"]:
            curve = self.curves.attempts(name, event.rank).get(event.attempt)
            if curve is not None and len(curve) and not name.startswith("system/"):
                self._take_last(event, name, curve)

    def _take_last(self, event: RunEvent, name: str, curve: Curve) -> None:
        step = int(curve.last[-1])
        if event.rank == 0:
            self.state.values[name] = {"step": step, "value": encode_number(curve.value[-1])}
            attempt = self.attempts.setdefault(event.attempt, Attempt(event.attempt))
            self._reached(attempt, int(curve.first[0]))
            self._reached(attempt, step)
            if self.state.step is None or step > self.state.step:
                self.state.step = step
            self.state.phase = self.state.phase or "train"
        rank = self.ranks[event.rank]
        rank.step = max(step, rank.step or 0)
        if name.endswith(_WATCHED):
            self._watch(event.rank, name, curve.last, curve.value, curve.time)

    def _age(self, reading: RankReading, now: float) -> float:
        """How old the last event already is. Of file time and event time, the later one counts: no alarm
        because of a clock that is wrong."""
        try:
            written = self._files.tail(reading.rank).stat().st_mtime
        except OSError:
            written = 0.0
        return max(0.0, now - max(written, reading.last_seen or 0.0))

    def find_processes(self) -> dict[tuple[int, int | None], bool]:
        """Of every rank that should live on this machine: whether its process does.

        A copy of a run has no locks: its processes, here or elsewhere, hold those of the original.
        """
        here = socket.gethostname()
        return {
            (reading.rank, reading.pid): RunLock.holder(self.run_dir, reading.rank) is not None
            for reading in self.ranks.values()
            if HAS_FLOCK
            and reading.status is None
            and reading.host == here
            and self._files.lock(reading.rank).exists()
        }


def _stretch(event: RunEvent) -> tuple[int, int, bool]:
    return event.attempt, event.rank, event.kind == "condensed"


def last_output(run_dir: str | os.PathLike[str]) -> list[str]:
    """The last lines that the training process printed, where an agent or `bloom` keeps them."""
    try:
        file = open_plain(Path(run_dir), "logs/output.log")
    except OSError:
        return []
    if file is None:
        return []
    with file:
        begin = max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES)
        file.seek(begin)
        lines = file.read(_OUTPUT_BYTES).decode(errors="replace").splitlines()
    # The first line is cut wherever the reading began.
    return lines[1 if begin else 0 :][-_OUTPUT_LINES:]


def search_log(
    run_dir: str | os.PathLike[str],
    text: str = "",
    *,
    levels: Iterable[str] | None = None,
    most: int = 1000,
) -> list[LogLine]:
    """The last `most` lines that contain `text` (upper and lower case alike) and have one of these levels."""
    wanted = text.casefold()
    allowed = None if levels is None else frozenset(levels)
    found: deque[LogLine] = deque(maxlen=most)
    reader = Reader(run_dir, kinds=["log"])
    while events := reader.read_new():
        for event in events:
            level, line = str(event.fields.get("level", "info")), str(event.fields.get("line", ""))
            if (allowed is None or level in allowed) and wanted in line.casefold():
                found.append(LogLine(event.t, event.rank, event.attempt, level, line))
    return sorted(found, key=lambda line: line.t)
