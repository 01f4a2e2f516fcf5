"""Condenses a stream while it is written, so that nobody has to read all of it to draw a chart.

Runs on the writer thread. What it keeps is bounded: curves in buckets, of events only what a view needs to
know where a run stands.
"""

import contextlib
import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpubloom.traincard.condensed_files import load_condensed, save_condensed
from gpubloom.traincard.layout import RunFiles, StreamId
from gpubloom.traincard.points import points_by_series
from gpubloom.traincard.reader import RunEvent
from gpubloom.traincard.series import Curves

# How many of the last events of a kind are kept; of all other kinds together as many as of a phase.
_KEPT = {
    "start": 10, "resumed": 10, "checkpoint": 2000, "checkpoint_removed": 2000, "log": 500, "error": 20,
    "end": 5, "applied": 200, "phase": 50, "progress": 1, "system": 24, "dropped": 1, "describe": 1,
}  # fmt: skip
_BUCKETS_TOGETHER = 100_000


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
            with contextlib.suppress(ValueError, KeyError, TypeError):
                condenser.add([json.loads(line)])
    condenser.save(files, size)
