"""Reads a run directory bit by bit while it grows.

A position is (attempt, rank, segment) and a byte offset behind the last full line that was used. Sealing a
tail is a rename that changes no byte, so positions stay valid; a torn last line is simply not there yet. A
reader writes nothing and keeps nothing but its positions.

A run may come from another machine. No file is read through a link (`traincard.safe_paths`), and a line that
no Reporter writes is a damaged one.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpubloom.errors import InputError
from gpubloom.traincard.condensed_files import load_condensed
from gpubloom.traincard.field_types import read_head
from gpubloom.traincard.layout import PROTOCOL_VERSION, RunFiles, StreamId
from gpubloom.traincard.names import series_name
from gpubloom.traincard.number_encoding import decode_number
from gpubloom.traincard.safe_paths import open_plain, read_json_beneath
from gpubloom.traincard.stream import parse_start
from gpubloom.traincard.sync.files import CHECKPOINT_INDEX, LATEST

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 32 << 20


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One line of a stream. `fields` is the whole line, unknown fields included."""

    attempt: int
    rank: int
    seq: int
    t: float
    kind: str
    step: int | None
    fields: Mapping[str, Any]

    def series(self) -> Iterator[tuple[str, float]]:
        """The values in a `metric` or `system` event, under the names that all readers use."""
        values = self.fields.get("values")
        if self.kind not in {"metric", "system"} or not isinstance(values, dict):
            return
        tags = self.fields.get("tags")
        for name, stored in values.items():
            value = decode_number(stored)
            if isinstance(value, (int, float)):
                yield (f"system/{name}" if self.kind == "system" else series_name(name, tags)), value


class Reader:
    """Follows the events of a run.

    `ranks`: only these, by default all. `cursor`: where an earlier reader of the same run stopped (its
    `cursor`). `condensed`: where a stream's beginning lies condensed beside it, one event of the kind
    `condensed` comes in place of that beginning, with the file's content as its fields. `kinds`: only
    these, and `start`.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        ranks: Iterable[int] | None = None,
        cursor: Mapping[str, int] | None = None,
        condensed: bool = False,
        kinds: Iterable[str] | None = None,
    ) -> None:
        self._files = RunFiles(run_dir)
        self._condensed = condensed
        # Looked for in the line before it is parsed: most lines of a long run are metrics.
        self._marks = None if kinds is None else tuple(f'"{kind}"'.encode() for kind in ("start", *kinds))
        self._kinds = None if kinds is None else frozenset(("start", *kinds))
        self._ranks = None if ranks is None else frozenset(ranks)
        self._offsets: dict[str, int] = dict(cursor or {})
        self._finished: set[StreamId] = set()
        self.damaged_lines = 0
        self.is_caught_up = False
        """Whether the last call of `read_new` came to the end of every stream."""

    @property
    def cursor(self) -> dict[str, int]:
        """The position as plain JSON: bytes used, by attempt, rank and segment."""
        return dict(self._offsets)

    def read_new(self, max_bytes: int = 4 * _CHUNK_BYTES) -> list[RunEvent]:
        """Events since the last call, by attempt, rank and order; empty when there is nothing new.

        Reads about `max_bytes` at most, so memory stays bounded; call again until it is empty to catch up.
        """
        events: list[RunEvent] = []
        while self._read_some(max_bytes, events) and not events:
            # Lines were read, but none was asked for.
            pass
        return events

    def _read_some(self, max_bytes: int, events: list[RunEvent]) -> bool:
        left = max_bytes
        # The tails are opened first: one that is sealed meanwhile is then seen twice, under the same name,
        # not never.
        with _OpenFiles(self._files.run_dir) as opened:
            sources: dict[StreamId, Path | IO[bytes]] = {}
            for path in self._files.tails():
                if found := opened.open_tail(path):
                    sources[found[0]] = found[1]
            sources = {**self._files.sealed(), **sources}
            for stream in sorted(sources.keys() - self._finished):
                if left <= 0:
                    break
                if self._ranks is None or stream.rank in self._ranks:
                    source = sources[stream]
                    file = opened.file(source)
                    used = 0 if file is None else self._read(stream, file, left, events)
                    left -= used
                    # What is sealed does not grow: read to its end, it need not be opened again.
                    if used == 0 and isinstance(source, Path):
                        self._finished.add(stream)
        self.is_caught_up = left > 0
        return left < max_bytes

    def _read(self, stream: StreamId, file: IO[bytes], most: int, events: list[RunEvent]) -> int:
        key = str(stream)
        used = 0
        if self._condensed and key not in self._offsets and (found := load_condensed(self._files, stream)):
            size = file.seek(0, os.SEEK_END)
            if found["bytes"] <= size:
                events.append(_condensed_event(stream, found))
                self._offsets[key] = found["bytes"]
                # Counted as a good part of what may be read: its curves are many numbers.
                used = min(most, _CHUNK_BYTES)
        while used < most:
            offset = self._offsets.get(key, 0)
            file.seek(offset)
            data = _up_to_last_line(file, min(_CHUNK_BYTES, most - used))
            if not data:
                break
            lines = data[:-1].split(b"\n")
            if self._marks is not None:
                lines = [line for line in lines if any(mark in line for mark in self._marks)]
            events.extend(self._events(stream, lines))
            self._offsets[key] = offset + len(data)
            used += len(data)
        return used

    def _events(self, stream: StreamId, lines: list[bytes]) -> Iterator[RunEvent]:
        try:
            # As one text: going into the parser once is a good part cheaper than once for every line.
            found: list[Any] = json.loads(b"[%b]" % b",".join(lines))
        except (ValueError, RecursionError):
            found = []
        if len(found) != len(lines):
            found = [_parsed(line) for line in lines]
        for fields in found:
            if event := self._event(stream, fields):
                yield event

    def _event(self, stream: StreamId, fields: Any) -> RunEvent | None:
        if (head := read_head(fields)) is None:
            self.damaged_lines += 1
            return None
        seq, t, kind, step = head
        event = RunEvent(stream.attempt, stream.rank, seq, t, kind, step, fields)
        version = fields.get("v", 0) if event.kind == "start" else 0
        if isinstance(version, int) and version > PROTOCOL_VERSION:
            raise InputError(
                "newer_version",
                f"{self._files.run_dir} has version {version} of the run directory format, but "
                f"this program reads only up to version {PROTOCOL_VERSION}. Install a newer gpubloom.",
            )
        return event if self._kinds is None or event.kind in self._kinds else None


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _condensed_event(stream: StreamId, found: Mapping[str, Any]) -> RunEvent:
    return RunEvent(stream.attempt, stream.rank, found["seq"], float(found["t"]), "condensed", None, found)


class _OpenFiles:
    """Files that are open during one call of `read_new`."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._open: list[IO[bytes]] = []

    def __enter__(self) -> "_OpenFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open:
            file.close()

    def file(self, source: Path | IO[bytes]) -> IO[bytes] | None:
        """None: it is not there, or no plain file."""
        if not isinstance(source, Path):
            return source
        file = open_plain(self._run_dir, source.relative_to(self._run_dir).as_posix())
        if file is not None:
            self._open.append(file)
        return file

    def open_tail(self, path: Path) -> tuple[StreamId, IO[bytes]] | None:
        # Nothing there: sealed between listing and opening, and found under its new name.
        if (file := self.file(path)) is None:
            return None
        found = parse_start(file.readline(_CHUNK_BYTES))
        return None if found is None else (found[0], file)


def _up_to_last_line(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    end = data.rfind(b"\n") + 1
    # A line longer than the piece: read on until it ends, or until there is no more.
    while end == 0 and (more := file.read(size)):
        if len(data) >= _LONGEST_LINE:
            # No Reporter writes such a line. What is read of it counts as one that is damaged.
            return data
        end = more.rfind(b"\n") + 1
        end += len(data) if end else 0
        data += more
    return data[:end]


def read_all(run_dir: str | os.PathLike[str], *, ranks: Iterable[int] | None = None) -> Iterator[RunEvent]:
    """Every event of a run as it is now, in bounded memory."""
    reader = Reader(run_dir, ranks=ranks)
    while events := reader.read_new():
        yield from events


def load_latest(run_dir: str | os.PathLike[str]) -> dict[str, Any] | None:
    """latest.json with its numbers decoded; None when the run has said nothing yet."""
    latest = read_json_beneath(Path(run_dir), LATEST)
    if latest is None:
        return None
    values, system = latest.get("values"), latest.get("system")
    # A script may have written anything: what has no value is left out.
    latest["values"] = {
        name: {**last, "value": decode_number(last["value"])}
        for name, last in (values.items() if isinstance(values, dict) else ())
        if isinstance(last, dict) and "value" in last
    }
    latest["system"] = {
        name: decode_number(value) for name, value in (system.items() if isinstance(system, dict) else ())
    }
    return latest


def load_checkpoints(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """checkpoints.json: {"best": path or None, "checkpoints": [...]}; empty when nothing was saved yet."""
    found = read_json_beneath(Path(run_dir), CHECKPOINT_INDEX) or {}
    return {"best": found.get("best"), "checkpoints": found.get("checkpoints") or []}
