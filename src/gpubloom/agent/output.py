"""The log of what a training process prints: bounded, and never a reason for the run to stop.

The newest output is kept in two files: `output.log` grows to half the limit, then becomes `output.1.log` in
place of the older one. What cannot be written, because the disk is full or the folder is gone, is dropped
and counted; lines of the agent's own say what is missing.
"""

import os
import time
from pathlib import Path

# A full disk is asked again this often, not with every line.
_RETRY_SECONDS = 1.0
_SMALLEST_HALF = 4096


class OutputLog:
    """Writes never raise: they keep, rotate, or drop and count."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._path = path
        self._older = path.with_name(f"{path.stem}.1{path.suffix}")
        self._limit = limit_bytes
        self._half = max(limit_bytes // 2, _SMALLEST_HALF)
        self._descriptor: int | None = None
        self._size = 0
        self._retry_at = 0.0
        self._problem = ""
        # Lost since the last line that said so, and in all.
        self._unsaid_bytes = 0
        self._rotated_bytes = 0
        self._lost_bytes = 0
        self._ends_line = True

    @property
    def dropped_bytes(self) -> int:
        """What was printed and is not in the log any more, or never was."""
        return self._rotated_bytes + self._lost_bytes

    def note(self, sentence: str) -> None:
        """A line of the agent's own."""
        self.write(f"[bloom-agent] {sentence}\n".encode())

    def write(self, data: bytes) -> None:
        if not self._ready():
            self._lose(len(data))
            return
        begins_line, self._ends_line = self._ends_line, data.endswith(b"\n")
        rest = memoryview(data)
        is_new_file = False
        while len(rest):
            room = self._half - self._size
            if len(rest) <= room:
                self._append(rest)
                return
            start = len(data) - len(rest)
            # Files change between two lines; only a line that is longer than a file is cut.
            if cut := data.rfind(b"\n", start, start + max(room, 0)) + 1:
                part = cut - start
            elif (data[start - 1 : start] == b"\n" if start else begins_line) and not is_new_file:
                part = 0
            else:
                part = max(room, 0)
            self._append(rest[:part])
            rest = rest[part:]
            if not self._rotate():
                self._lose(len(rest))
                return
            is_new_file = True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _ready(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        try:
            if self._descriptor is None:
                self._open()
            if self._unsaid_bytes:
                self._say(
                    f"\n[bloom-agent] {self._unsaid_bytes} bytes of output were lost: {self._problem}.\n"
                )
                self._unsaid_bytes = 0
        except OSError as problem:
            self._fail(problem)
            return False
        return True

    def _open(self) -> None:
        # Only the folder itself: whoever deleted the run directory does not get it back.
        self._path.parent.mkdir(exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._descriptor).st_size

    def _say(self, text: str) -> None:
        line = text.encode()
        assert self._descriptor is not None
        written = os.write(self._descriptor, line)
        self._size += written
        if written < len(line):
            raise OSError(28, "No space left on device")

    def _append(self, data: memoryview) -> None:
        while len(data):
            if self._descriptor is None:
                self._lose(len(data))
                return
            try:
                written = os.write(self._descriptor, data)
            except OSError as problem:
                self._fail(problem)
                self._lose(len(data))
                return
            self._size += written
            data = data[written:]

    def _rotate(self) -> bool:
        self.close()
        try:
            replaced = self._older.stat().st_size if self._older.exists() else 0
            self._path.replace(self._older)
            self._rotated_bytes += replaced
            self._open()
            if self._rotated_bytes:
                self._say(
                    f"[bloom-agent] {self._rotated_bytes} bytes of earlier output were dropped. The "
                    f"newest {self._limit} bytes are kept.\n"
                )
        except OSError as problem:
            self._fail(problem)
            return False
        return True

    def _fail(self, problem: OSError) -> None:
        self._problem = problem.strerror or str(problem)
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self.close()

    def _lose(self, size: int) -> None:
        self._lost_bytes += size
        self._unsaid_bytes += size
