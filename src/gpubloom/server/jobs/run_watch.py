"""What diagnosis says about a run, for its page: findings, ranks, machines, and the end of its log.

The worker feeds a watch with the events that it reads anyway. Runs that were sent here and runs of a folder
have no worker: their watch reads the run directory itself, each time from where it stopped.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar

from gpubloom.server.jobs.logs import has_output, read_output, search_output
from gpubloom.server.jobs.schemas import LogMatches, LogPage
from gpubloom.server.jobs.summary import Processes
from gpubloom.server.schema import Finding, storable
from gpubloom.traincard import Reading, RunEvent
from gpubloom.traincard.diagnosis import diagnose
from gpubloom.traincard.findings import OF_DATA
from gpubloom.traincard.number_encoding import plain
from gpubloom.traincard.reading import search_log
from gpubloom.traincard.snapshot import elapsed_seconds, rank_section
from gpubloom.traincard.system_series import nodes

LOOK_EVERY_SECONDS = 5.0
# The limit of a job's page; the run directory has all of them.
_MOST_RANKS = 128
_MOST_NODES = 32
_OF_ENDED_RUNS = OF_DATA | {
    "diverging",
    "few_rows_used",
    "overfitting",
    "no_learning",
    "run_warning",
    "run_error",
}
_LONGEST_LINE = 4_000
# Readings of runs that somebody sends or looks at; each is a few megabytes at most.
_MOST_WATCHED = 64

Result = TypeVar("Result")


def findings_of(reading: Reading, *, ended: bool) -> list[Finding]:
    """The findings now; of a run that has ended only those that still mean something."""
    found = [plain(each.as_dict(), text=storable) for each in diagnose(reading)]
    return [Finding.model_validate(each) for each in found if not ended or each["kind"] in _OF_ENDED_RUNS]


def processes_of(reading: Reading) -> Processes:
    """The ranks and machines of a run; empty for a run of one process."""
    count = len(reading.ranks)
    if count < 2:
        return Processes()
    parts = rank_section(reading, reading.now())
    machines = nodes(reading)
    shown = {
        "ranks": parts["ranks"][:_MOST_RANKS],
        "rank_variance": parts["rank_variance"][:_MOST_RANKS],
        "nodes": machines[:_MOST_NODES] if len(machines) > 1 else [],
        "left_out": max(0, count - _MOST_RANKS),
    }
    return Processes.model_validate(plain(shown, text=storable))


@dataclass(frozen=True)
class RunLook:
    """What a look at a run says: findings, ranks, and the time that the run has taken without pauses.

    `active_seconds` goes up to `active_since`, where an attempt is running.
    """

    findings: list[Finding]
    processes: Processes
    active_seconds: float
    active_since: datetime | None


def look_at(reading: Reading, *, ended: bool) -> RunLook:
    """A look at a run. `ended`: nothing is said that matters only while it runs."""
    seconds, since = elapsed_seconds(reading), None
    newest = reading.attempts.get(max(reading.attempts, default=0))
    if not ended and newest is not None and newest.started_at is not None:
        seconds -= max(0.0, (newest.last_t or newest.started_at) - newest.started_at)
        since = datetime.fromtimestamp(newest.started_at, UTC)
    findings = findings_of(reading, ended=ended)
    return RunLook(findings, processes_of(reading), max(0.0, seconds), since)


class RunWatch:
    """The findings about one run, from the events that its follower reads.

    `has_history`: an earlier follower read a part of the run; it is read again, as far as it is condensed.
    """

    def __init__(self, run_dir: Path, *, has_history: bool) -> None:
        self._reading = Reading(run_dir)
        self._has_history = has_history
        self._looked = time.monotonic()
        self._processes: dict[tuple[int, int | None], bool] = {}

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._looked >= LOOK_EVERY_SECONDS

    def find_processes(self) -> None:
        """Before the events are read that a look is for: a process that ends meanwhile is not called dead."""
        self._processes = self._reading.find_processes()

    def take_in(self, events: Sequence[RunEvent]) -> None:
        if self._has_history:
            self._has_history = False
            self._reading.update()
        self._reading.take_in(events)

    def look(self, *, ended: bool = False) -> tuple[list[Finding], Processes]:
        """The findings now, and the ranks of the run."""
        self._looked = time.monotonic()
        # A run that no longer reports still has a history.
        self.take_in([])
        self._reading.note_processes(self._processes)
        return findings_of(self._reading, ended=ended), processes_of(self._reading)


@dataclass
class _CachedReading:
    reading: Reading
    lock: threading.Lock


class RunReadings:
    """Readings of run directories that no worker follows. Those that were asked for last are kept.

    A call runs in a thread. Two calls for the same run wait for each other.
    """

    def __init__(
        self, *, most: int = _MOST_WATCHED, open_run: Callable[[Path], Reading] | None = None
    ) -> None:
        self._most = most
        self._open = open_run or Reading
        self._cache: OrderedDict[Path, _CachedReading] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run_dir: Path, use: Callable[[Reading], Result]) -> Result:
        """Bring the reading of a run up to date and use it. OSError, ValueError: the run cannot be read."""
        with self._lock:
            cached = self._cache.setdefault(run_dir, _CachedReading(self._open(run_dir), threading.Lock()))
            self._cache.move_to_end(run_dir)
            while len(self._cache) > self._most:
                self._cache.popitem(last=False)
        with cached.lock:
            cached.reading.update()
            return use(cached.reading)

    def look(self, run_dir: Path, *, ended: bool) -> RunLook:
        """The current findings and processes of a run."""
        return self.read(run_dir, lambda reading: look_at(reading, ended=ended))


def log_page(readings: RunReadings, run_dir: Path, *, after: int | None, limit: int) -> LogPage:
    """The end of a run's output, or what came after a position.

    Where a Reporter captured the output it is in the run's events, and a position counts lines, not bytes.
    """
    if has_output(run_dir):
        part = read_output(run_dir, after=after, most_lines=limit)
        return LogPage(lines=part.lines, start=part.start, end=part.end)
    try:
        return readings.read(run_dir, lambda reading: _log_lines(reading, after, limit))
    except (OSError, ValueError):
        return LogPage(lines=[], start=0, end=0)


def _log_lines(reading: Reading, after: int | None, limit: int) -> LogPage:
    total = reading.log_total
    first = total - len(reading.log)
    start = max(first, total - limit) if after is None or after > total else max(first, after)
    lines = [storable(each.line)[:_LONGEST_LINE] for each in islice(reading.log, start - first, None)]
    return LogPage(lines=lines, start=start, end=total)


def log_matches(run_dir: Path, text: str, *, limit: int) -> LogMatches:
    """The newest lines of a run's output that contain a text."""
    if has_output(run_dir):
        found, more = search_output(run_dir, text, most=limit)
        return LogMatches(lines=found, more=more)
    try:
        lines = search_log(run_dir, text, most=limit + 1)
    except (OSError, ValueError):
        return LogMatches(lines=[], more=False)
    shown = [storable(each.line)[:_LONGEST_LINE] for each in lines[-limit:]]
    return LogMatches(lines=shown, more=len(lines) > limit)
