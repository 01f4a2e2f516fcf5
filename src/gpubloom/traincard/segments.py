"""A rank's stream in segments that stay readable: sealed when large, condensed while it is written.

The raw lines are the truth. `Condenser` keeps curves in buckets and the few events that a view needs, so that
nobody has to read all lines to draw a chart. It runs on the writer thread, and its file is written apart from
the events, because formatting it may take longer than a killed process may lose.
"""

import contextlib
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpubloom.traincard.condensed_files import condensed_bytes, load_condensed, save_condensed
from gpubloom.traincard.layout import RunFiles, StreamId
from gpubloom.traincard.reader import RunEvent
from gpubloom.traincard.series import Curves, points_by_series
from gpubloom.traincard.stream import EventStream

# How many of the last events of a kind are kept; of all other kinds together as many as of a phase.
_KEPT = {
    "start": 10, "resumed": 10, "checkpoint": 2000, "checkpoint_removed": 2000, "log": 500, "error": 20,
    "end": 5, "ran": 50, "alert": 50, "sample": 500, "applied": 200, "phase": 50, "progress": 1,
    "system": 24, "dropped": 1, "describe": 1,
}  # fmt: skip
_BUCKETS_TOGETHER = 100_000

SEGMENT_BYTES = 64 * 1024**2
_CONDENSE_BYTES = 8 * 1024**2


class Condenser:
    """One stream, from its first event on."""

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self._curves = Curves(rank=None, most_together=_BUCKETS_TOGETHER)
        self._kept: dict[str, deque[dict[str, Any]]] = {}
        self._logged: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._facts: dict[str, Any] = {}
        self._last = (0, 0.0)

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Takes in events as they are on file, their `seq` included."""
        self._curves.add_points(self.stream.rank, self.stream.attempt, points_by_series(records))
        for fields in records:
            self._last = (int(fields["seq"]), float(fields["t"]))
            if fields["kind"] != "metric":
                self._keep(str(fields["kind"]), fields)

    def _keep(self, kind: str, fields: Mapping[str, Any]) -> None:
        kept = dict(fields)
        if kind == "log":
            self._logged[str(fields.get("level"))] += 1
        elif kind == "dropped":
            # Of counts and facts the sum is kept: one event, as if all had been said at once.
            self._dropped.update(fields.get("counts") or {})
            kept["counts"] = dict(self._dropped)
        elif kind == "describe":
            self._facts.update(fields.get("facts") or {})
            kept["facts"] = dict(self._facts)
        elif kind == "heartbeat":
            # The loop's own and the Reporter's mean different things: the last of each.
            kind = f"heartbeat {bool(fields.get('auto'))}"
        group = kind if kind in _KEPT or kind.startswith("heartbeat ") else "other"
        most = 1 if group.startswith("heartbeat ") else _KEPT.get(group, _KEPT["phase"])
        self._kept.setdefault(group, deque(maxlen=most)).append(kept)

    def go_on_from(self, found: dict[str, Any]) -> None:
        """Takes over what an earlier process condensed of the same stream."""
        self.add(found["events"])
        self._logged["error"] += found.get("log_errors_left_out", 0)
        self._logged["info"] += found.get("log_lines_left_out", 0) - found.get("log_errors_left_out", 0)
        # Afterwards: the telemetry among the kept events is in the curves as well.
        self._curves = Curves(rank=None, most_together=_BUCKETS_TOGETHER)
        stream, seq, t = self.stream, found["seq"], found["t"]
        self._curves.add(RunEvent(stream.attempt, stream.rank, seq, t, "condensed", None, found))
        self._last = (seq, t)

    def copy(self) -> "Condenser":
        """As it is now, for a thread that formats it while this one goes on."""
        copy = Condenser(self.stream)
        copy._curves = self._curves.copy()
        copy._kept = {kind: kept.copy() for kind, kept in self._kept.items()}
        copy._logged, copy._last = self._logged.copy(), self._last
        return copy

    def save(self, files: RunFiles, size: int) -> None:
        """Writes all that was taken in; `size`: so many bytes of the stream that is. OSError: not written."""
        events = sorted(
            (event for kept in self._kept.values() for event in kept), key=lambda event: event["seq"]
        )
        shown = Counter(str(event.get("level")) for event in self._kept.get("log", ()))
        seq, t = self._last
        head = {
            "bytes": size,
            "seq": seq,
            "t": t,
            "events": events,
            "log_lines_left_out": self._logged.total() - shown.total(),
            "log_errors_left_out": self._logged["error"] - shown["error"],
            "series_left_out": self._curves.left_out,
        }
        save_condensed(files.condensed(self.stream), head, self._series())

    def _series(self) -> Iterator[tuple[str, Any]]:
        rank, attempt = self.stream.rank, self.stream.attempt
        for name in self._curves.names(rank):
            yield name, self._curves.attempts(name, rank)[attempt].columns()


def condense(files: RunFiles, stream: StreamId) -> None:
    """Condenses a sealed segment whose writer was killed before it could. Reads what is missing."""
    condenser = Condenser(stream)
    size = 0
    if found := load_condensed(files, stream):
        condenser.go_on_from(found)
        size = found["bytes"]
    with files.segment(stream).open("rb") as file:
        file.seek(size)
        for line in file:
            if not line.endswith(b"\n"):
                break
            size += len(line)
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                condenser.add([json.loads(line)])
    condenser.save(files, size)


class Segments:
    """Appends to the tail, and seals it when it is full. Not for several threads at once."""

    def __init__(self, files: RunFiles, attempt: int, rank: int, world_size: int, segment_bytes: int) -> None:
        self._files = files
        self._attempt, self._rank, self._world_size = attempt, rank, world_size
        self._segment_bytes = segment_bytes
        self._stream: EventStream | None = None
        self._after = (0, 0)
        self._condenser: Condenser | None = None
        self._condensed_size = 0
        self._saving: threading.Thread | None = None
        self.in_tail: Counter[str] = Counter()
        """How many events of each kind lie in the open tail."""

    def open(self) -> dict[str, Any]:
        """Begins a tail, behind what is there already; returns its `start` record. OSError: not possible."""
        stream, start = EventStream.open(
            self._files, self._attempt, self._rank, self._world_size, self._after
        )
        self._stream, self._condenser, self._condensed_size = stream, Condenser(stream.stream), 0
        self.in_tail.clear()
        self._condenser.add([start])
        return start

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    @property
    def is_gone(self) -> bool:
        """Whether somebody deleted the tail."""
        return self._stream is not None and self._stream.is_gone

    def append(self, records: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], OSError | None]:
        """Writes records in order; returns those on file, with their `seq`, and what stopped the rest."""
        assert self._stream is not None
        assert self._condenser is not None
        written, problem = self._stream.append(records)
        if self._stream.is_gone:
            return [], OSError(f"{self._stream.path} was deleted")
        first = self._stream.next_seq - written
        on_file = [{"seq": first + number, **record} for number, record in enumerate(records[:written])]
        self.in_tail.update(fields["kind"] for fields in on_file)
        self._condenser.add(on_file)
        return on_file, problem

    def let_go(self) -> None:
        """Closes a tail; the next one continues its numbers."""
        if self._stream is not None:
            self._after = (self._stream.stream.segment, self._stream.next_seq)
            self._stream.close()
            self._stream = self._condenser = None

    def make_room(self) -> None:
        """Seals a full tail and begins the next. OSError: sealed, but the next could not be begun."""
        assert self._stream is not None
        if self._stream.size >= self._segment_bytes:
            full, size = self._condenser, self._stream.size
            assert full is not None
            self.let_go()
            self._save_behind(lambda: full.save(self._files, size), wait=True)
            self.open()

    def condense(self) -> None:
        """Condenses, in a thread of its own, a tail that has grown."""
        assert self._stream is not None
        assert self._condenser is not None
        size = self._stream.size
        if size - self._condensed_size >= _CONDENSE_BYTES:
            # A copy, because the writer goes on adding while it is formatted.
            copy = self._condenser.copy()
            if self._save_behind(lambda: copy.save(self._files, size), wait=False):
                self._condensed_size = size

    def condense_earlier(self) -> None:
        """Condenses, in a thread of its own, what earlier processes left behind when they were killed."""
        # Nobody waits for it: it may be much, and it can be done by whoever comes next.
        threading.Thread(target=self._condense_sealed, name="traincard-condense", daemon=True).start()

    def _condense_sealed(self) -> None:
        with contextlib.suppress(OSError):
            self._condense_all_sealed()

    def _condense_all_sealed(self) -> None:
        for stream, path in self._files.sealed().items():
            is_ours = stream.rank == self._rank and stream.attempt != self._attempt
            if is_ours and condensed_bytes(self._files, stream) < path.stat().st_size:
                condense(self._files, stream)

    def _save_behind(self, work: Callable[[], None], *, wait: bool) -> bool:
        if self._saving is not None and self._saving.is_alive():
            if not wait:
                return False
            self._saving.join()

        def run() -> None:
            # Derived data: readers do without it, and a full disk has been complained about already.
            with contextlib.suppress(OSError):
                work()

        self._saving = threading.Thread(target=run, name="traincard-condense", daemon=True)
        self._saving.start()
        return True

    def sync_copy(self) -> Callable[[], None]:
        """As something that another thread can call: puts the tail on disk."""
        assert self._stream is not None
        return self._stream.sync_copy()

    def close(self) -> None:
        """Condenses all of the tail, puts it on disk and closes it. It stays where it is."""
        if self._saving is not None:
            self._saving.join()
        if self._stream is not None and self._condenser is not None:
            with contextlib.suppress(OSError):
                self._condenser.save(self._files, self._stream.size)
                self._stream.sync()
            self._stream.close()

    def forget_after_fork(self) -> None:
        """In a forked child: closes its copy of the file."""
        if self._stream is not None:
            self._stream.close()
