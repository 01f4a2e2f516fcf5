"""Looks through the whole log of a run, without keeping it."""

import os
from collections import deque
from collections.abc import Iterable

from gpubloom.traincard.reader import Reader
from gpubloom.traincard.reading import LogLine


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
