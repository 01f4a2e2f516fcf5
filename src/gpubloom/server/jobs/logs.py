"""Reads a run's output: the tail, what came since, or the lines that contain a text. Bounded every time."""

import os
from dataclasses import dataclass
from pathlib import Path

from gpubloom.traincard.safe_paths import is_file_beneath, open_plain

_LONGEST_LINE = 4_000
_TAIL_BYTES = 256 * 1024
_PIECE = 1 << 20


@dataclass(frozen=True)
class OutputPart:
    """Some lines of the output, and where they lie in it."""

    lines: list[str]
    start: int
    end: int


# Oldest part first: the agent moves a full file aside.
_OUTPUT_FILES = ("logs/output.1.log", "logs/output.log")


def has_output(run_dir: Path) -> bool:
    """Whether an agent or `bloom train` keeps the output. Otherwise it is in the run's events."""
    return is_file_beneath(run_dir, _OUTPUT_FILES[-1])


def read_output(run_dir: Path, *, after: int | None, most_lines: int) -> OutputPart:
    """The last lines of the current file, or the lines after a byte position."""
    if (file := open_plain(run_dir, _OUTPUT_FILES[-1])) is None:
        return OutputPart([], 0, 0)
    with file:
        size = os.fstat(file.fileno()).st_size
        # A position past the end belongs to a file that was moved aside: start anew.
        start = max(0, size - _TAIL_BYTES) if after is None or after > size else after
        file.seek(start)
        data = file.read(_TAIL_BYTES)
    if after is None and start > 0:
        # The first line was cut in half.
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    end = data.rfind(b"\n") + 1
    if end == 0 and len(data) == _TAIL_BYTES:
        end = len(data)
    lines = [_readable(line) for line in data[:end].split(b"\n")[:-1]]
    return OutputPart(lines[-most_lines:] if after is None else lines, start, start + end)


def search_output(run_dir: Path, text: str, *, most: int) -> tuple[list[str], bool]:
    """The newest lines that contain a text, in order, and whether there are more."""
    wanted = text.casefold()
    found: list[str] = []
    more = False
    for file in filter(None, (open_plain(run_dir, name) for name in _OUTPUT_FILES)):
        with file:
            rest = b""
            while piece := file.read(_PIECE):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if wanted in (shown := _readable(line)).casefold():
                        found.append(shown)
                        if len(found) > most:
                            found.pop(0)
                            more = True
                rest = rest[-_PIECE:]
    return found, more


def _readable(line: bytes) -> str:
    # A progress bar redraws itself with carriage returns; what it showed last is what counts.
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    return shown.decode("utf-8", "replace")[:_LONGEST_LINE]
