"""Which files of a run directory are synced, and what kind each of them is. The path alone decides.

- append-only: event streams and logs. Only what is new at the end is sent.
- immutable: sealed segments and the claims of attempts. Sent once; the size tells whether all of it arrived.
- replaceable: everything else, such as latest.json. Sent whole when it has changed. Checkpoints are of this
  kind because scripts write theirs in place.

Not synced: hidden names (temporary files), names that no receiver accepts (`is_valid_name`), links, locks,
which mean something on one machine only, and the folder of the agent, which belongs to the machine on which
it runs.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

FileKind = Literal["append_only", "immutable", "replaceable"]

LATEST = "traincard/latest.json"
CHECKPOINT_INDEX = "traincard/checkpoints.json"
CONTROL = "traincard/control.json"
# Folders whose files may take minutes to send.
LARGE_FOLDERS = ("checkpoints/", "model/")

_TAIL = re.compile(r"traincard/events(\.rank\d+)?\.jsonl")
_APPEND_ONLY = re.compile(r"(?!traincard/segments/)(.*/)?(.*\.(log|jsonl)|events\.out\.tfevents\..*)")
_IMMUTABLE = re.compile(r"traincard/(segments/a\d+\.r\d+\.s\d+\.jsonl|attempts/.*)")
_NOT_SYNCED = re.compile(r"traincard/(lock(\.rank\d+)?|control\.lock)|agent/.*")
_CHECKPOINT_FOLDER = re.compile(r"checkpoints/[^/]+")
# A larger file would delay the small ones.
_LARGE_BYTES = 8 << 20
# Of a name in a run directory: what every file system takes, with room for a folder in front of it.
_LONGEST_NAME_BYTES = 1024
_LONGEST_PART_BYTES = 255
_DEEPEST = 32


@dataclass(frozen=True)
class FileState:
    """What the file system says of a file. Two states that are equal mean that the file has not changed."""

    size: int
    modified_ns: int
    inode: int

    def as_list(self) -> list[int]:
        """For JSON."""
        return [self.size, self.modified_ns, self.inode]


def file_state(path: Path) -> FileState | None:
    """The state of a file now; None when it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino)


def list_files(run_dir: Path, folders: Iterable[str] = (".",)) -> dict[str, FileState]:
    """Every file that is synced, by its path in the run directory; `folders`: only those in them."""
    found: dict[str, FileState] = {}
    pending = [run_dir / folder for folder in folders]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            # Deleted or renamed since it was listed: the next pass sees the new state.
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            path = Path(entry.path)
            name = path.relative_to(run_dir).as_posix()
            if not is_valid_name(name):
                continue
            if entry.is_dir():
                if name != "agent":
                    pending.append(path)
            elif entry.is_file() and not _NOT_SYNCED.fullmatch(name) and (state := file_state(path)):
                found[name] = state
    return found


def kind_of(name: str) -> FileKind:
    """The kind of a file, by its path in the run directory."""
    if _IMMUTABLE.fullmatch(name):
        return "immutable"
    return "append_only" if _APPEND_ONLY.fullmatch(name) else "replaceable"


def is_tail(name: str) -> bool:
    """Whether a file is an event stream that a Reporter still writes; sealed, it becomes a segment."""
    return _TAIL.fullmatch(name) is not None


def is_large(name: str, size: int) -> bool:
    """Whether a file is sent apart from the small ones."""
    return name.startswith(LARGE_FOLDERS) or (size > _LARGE_BYTES and not name.startswith("traincard/"))


def is_checkpoint_folder(name: str) -> bool:
    return _CHECKPOINT_FOLDER.fullmatch(name) is not None


def in_upload_order(names: Iterable[str]) -> list[str]:
    """Sorted, with latest.json last: readers look at it first, and what it names is then already there."""
    return sorted(names, key=lambda name: (name == LATEST, name))


def is_valid_name(name: str) -> bool:
    """Whether a name that another machine chose is one of a file inside of a run directory.

    One spelling for each file, because allow-lists compare names; nothing hidden; nothing that a log or an
    answer in JSON could not hold.
    """
    parts = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and len(name.encode()) <= _LONGEST_NAME_BYTES
        and len(parts) <= _DEEPEST
        and all(part and part[0] != "." and len(part.encode()) <= _LONGEST_PART_BYTES for part in parts)
    )


def is_inside(name: str) -> bool:
    """Whether a name that another machine chose stays inside the folder to which it is relative."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name
