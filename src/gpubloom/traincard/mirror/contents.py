"""What of a run directory is mirrored, and in which lane.

Left out: hidden names (temporary files), locks, which mean something on one machine only, and the agent's
folder, which is its owner's.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_TAIL = re.compile(r"traincard/events(\.rank\d+)?\.jsonl")
_LEFT_OUT = re.compile(r"traincard/(lock(\.rank\d+)?|control\.lock)|agent/.*")
_FOR_GOOD = re.compile(r"traincard/(segments/a\d+\.r\d+\.s\d+\.jsonl|attempts/.*)")
_LARGE_FOLDERS = ("checkpoints/", "model/")
# Above this a file would make the small ones wait.
_LARGE_BYTES = 8 << 20
GROWTH = "traincard/growth/"


@dataclass(frozen=True)
class Seen:
    """How a file looked. Two looks that are equal mean that nothing changed."""

    size: int
    modified_ns: int
    inode: int


def files_of(run_dir: Path) -> dict[str, Seen]:
    """Every file that belongs into the mirror, by its path in the run directory."""
    found: dict[str, Seen] = {}
    pending = [run_dir]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            # Deleted or renamed since it was listed: the next pass sees how things are then.
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            path = Path(entry.path)
            name = path.relative_to(run_dir).as_posix()
            if entry.is_dir():
                if name != "agent":
                    pending.append(path)
            elif not _LEFT_OUT.fullmatch(name) and (seen := look(path)):
                found[name] = seen
    return found


def look(path: Path) -> Seen | None:
    """How a file looks now; None when it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Seen(status.st_size, status.st_mtime_ns, status.st_ino)


def is_tail(name: str) -> bool:
    """Whether a file only grows, until it is sealed."""
    return _TAIL.fullmatch(name) is not None


def is_large(name: str, size: int) -> bool:
    """Whether a file goes the slow lane."""
    return name.startswith(_LARGE_FOLDERS) or (size > _LARGE_BYTES and not name.startswith("traincard/"))


def is_for_good(name: str) -> bool:
    """Whether a file of this name never changes once it is there, so that its size tells it apart."""
    return _FOR_GOOD.fullmatch(name) is not None
