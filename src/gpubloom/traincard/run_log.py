"""Looks through the whole log of a run without keeping it, and at the last lines that were printed."""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from gpubloom.traincard.reader import Reader
from gpubloom.traincard.reading import LogLine

_OUTPUT_BYTES = 64 * 1024
_OUTPUT_LINES = 200


def last_output(run_dir: str | os.PathLike[str]) -> list[str]:
    """The last lines that the training process printed, where an agent or `bloom` keeps them."""
    try:
        with Path(run_dir, "logs", "output.log").open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES)
            file.seek(begin)
            lines = file.read(_OUTPUT_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
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
