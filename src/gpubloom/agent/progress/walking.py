"""Looks through a script's folder without getting lost in it: it may hold a dataset of a million files."""

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

_MOST_ENTRIES = 5_000
_DEEPEST = 5
# Ours, or never what a script saves.
_NOT_THERE = {"traincard", "agent", "logs", ".home", "node_modules", "__pycache__", ".git", ".venv"}


def files_below(folder: Path, without: Collection[str] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """Plain files, never through links: those could lead out of the folder."""
    seen = 0
    for directory, folders, names in os.walk(folder):
        depth = len(Path(directory).relative_to(folder).parts)
        folders[:] = sorted(
            name for name in folders if depth < _DEEPEST and name not in _NOT_THERE and name not in without
        )
        seen += len(names) + len(folders)
        for path in (Path(directory, name) for name in names):
            try:
                found = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield path, found
        if seen > _MOST_ENTRIES:
            return


def open_plain(path: Path) -> int:
    """A descriptor to read from; OSError for a link, and no waiting for a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
