"""The open tail of one rank's events.

The invariant: the file always ends at a full line, or in one torn line that no reader uses. It appears
complete with its `start` line, grows by whole lines in one `write` each time, and is sealed by a rename
that changes no byte.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpubloom.traincard.layout import PROTOCOL_VERSION, RunFiles, StreamId
from gpubloom.traincard.number_encoding import to_json

_LAST_LINES_BYTES = 1 << 17


class EventStream:
    """Appends records to the tail and gives them their sequence numbers."""

    def __init__(self, path: Path, descriptor: int, stream: StreamId, next_seq: int, size: int) -> None:
        self.path = path
        self.stream = stream
        self.next_seq = next_seq
        self.size = size
        self._descriptor: int | None = descriptor
        self._torn = False

    @classmethod
    def open(
        cls,
        files: RunFiles,
        attempt: int,
        rank: int,
        world_size: int,
        after: tuple[int, int] = (0, 0),
    ) -> tuple["EventStream", dict[str, Any]]:
        """Seals whatever tail is there, begins a new one, and returns it with its `start` record.

        `after`: the segment and the next sequence number of a stream that this one continues even when
        nothing of it is on file any more.
        """
        path = files.tail(rank)
        _seal(files, path)
        segment, first_seq = after[0] + 1, after[1]
        sealed = [found for found in files.sealed() if (found.attempt, found.rank) == (attempt, rank)]
        if sealed and sealed[-1].segment >= segment:
            segment = sealed[-1].segment + 1
            first_seq = max(first_seq, _last_seq(files.segment(sealed[-1])) + 1)
        start: dict[str, Any] = {
            "t": round(time.time(), 4),
            "kind": "start",
            "v": PROTOCOL_VERSION,
            "attempt": attempt,
            "rank": rank,
            "segment": segment,
            "restart_count": attempt - 1,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "world_size": world_size,
        }
        if after != (0, 0):
            start["continues"] = True
        temporary = path.with_name(f".{path.name}.tmp")
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        try:
            # One small write: what does not fit whole on a full disk must not become a tail without a head.
            line = _line(first_seq, start)
            if os.write(descriptor, line) != len(line):
                raise OSError(f"could not write the first line of {path.name}: the disk is full")
            os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        stream = StreamId(attempt, rank, segment)
        return cls(path, descriptor, stream, first_seq + 1, len(line)), {"seq": first_seq, **start}

    def append(self, records: Sequence[dict[str, Any]]) -> tuple[int, OSError | None]:
        """Writes records in order; returns how many are on file whole, and what stopped the rest."""
        assert self._descriptor is not None
        lines = [_line(self.next_seq + number, record) for number, record in enumerate(records)]
        if self._torn:
            # The half-written line could not be cut off; ending it makes it one damaged line instead of two.
            lines[0] = b"\n" + lines[0]
        data = b"".join(lines)
        written, problem = self._write(data)
        if problem is None:
            self._torn = False
            self.next_seq += len(lines)
            self.size += len(data)
            return len(lines), None
        whole, end_of_whole = 0, 0
        for line in lines:
            if end_of_whole + len(line) > written:
                break
            end_of_whole += len(line)
            whole += 1
        if whole:
            self._torn = False
        self.size += end_of_whole
        self._cut_off(written - end_of_whole)
        self.next_seq += whole
        return whole, problem

    def _write(self, data: bytes) -> tuple[int, OSError | None]:
        assert self._descriptor is not None
        view, written = memoryview(data), 0
        while written < len(data):
            try:
                written += os.write(self._descriptor, view[written:])
            except OSError as problem:
                return written, problem
        return written, None

    def _cut_off(self, torn_bytes: int) -> None:
        if torn_bytes == 0:
            return
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - torn_bytes)
        except OSError:
            self._torn = True
            self.size += torn_bytes

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted under our hands: writing then works, and nobody will ever read it."""
        assert self._descriptor is not None
        return os.fstat(self._descriptor).st_nlink == 0

    def sync(self) -> None:
        """Asks the operating system to put the file on disk."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def sync_copy(self) -> Callable[[], None]:
        """As `sync`, as something that another thread can call: it survives this stream's closing."""
        assert self._descriptor is not None
        copy = os.dup(self._descriptor)

        def sync_and_close() -> None:
            try:
                with contextlib.suppress(OSError):
                    os.fsync(copy)
            finally:
                os.close(copy)

        return sync_and_close

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def claim_attempt(files: RunFiles, rank: int) -> int:
    """The next attempt number of this rank; two processes never get the same one."""
    files.attempts.mkdir(parents=True, exist_ok=True)
    taken = (_number_of(claim.name, rank) for claim in files.attempts.iterdir())
    attempt = max(taken, default=0) + 1
    while True:
        try:
            files.attempt_claim(attempt, rank).touch(exist_ok=False)
        except FileExistsError:
            attempt += 1
        else:
            return attempt


def _number_of(claim_name: str, rank: int) -> int:
    number, _, owner = claim_name.partition(".rank")
    return int(number) if number.isdecimal() and (owner or "0") == str(rank) else 0


def read_start(path: Path) -> tuple[StreamId, dict[str, Any]] | None:
    """The identity in a file's first line; None when that is torn or no `start`. OSError: no such file."""
    with path.open("rb") as file:
        return parse_start(file.readline(_LAST_LINES_BYTES))


def parse_start(line: bytes) -> tuple[StreamId, dict[str, Any]] | None:
    """As `read_start`, from the line itself."""
    if not line.endswith(b"\n"):
        return None
    try:
        start = json.loads(line)
        stream = StreamId(int(start["attempt"]), int(start["rank"]), int(start["segment"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return (stream, start) if stream.is_valid else None


def _seal(files: RunFiles, tail: Path) -> None:
    if not tail.exists():
        return
    files.segments.mkdir(parents=True, exist_ok=True)
    found = read_start(tail)
    if found is None:
        # Only a machine that lost power can leave this. Nothing in it can be placed, but nothing is thrown
        # away.
        tail.replace(files.segments / f"unreadable.{time.time_ns()}.jsonl")
    else:
        tail.replace(files.segment(found[0]))


def _last_seq(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_LINES_BYTES))
        lines = file.read().split(b"\n")[:-1]
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            return int(json.loads(line)["seq"])
    return 0


def _line(seq: int, record: dict[str, Any]) -> bytes:
    return f'{{"seq":{seq},{to_json(record)[1:]}\n'.encode()
