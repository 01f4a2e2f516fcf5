"""Files beneath a folder whose content somebody else chose: no step of a path is ever taken through a link.

A path is opened folder by folder, each relative to the one before, so that nothing changes when a folder is
swapped for a link meanwhile. Everything that is reached through a link is an OSError.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpubloom.errors import InputError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def parent_beneath(top: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that holds `name`, and the last part of it. `make`: folders on the way.

    FileNotFoundError when a folder is not there. ValueError for a name that is not a plain relative path.
    """
    *folders, last = name.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in (*folders, last)):
        raise InputError(
            "path_outside_folder",
            f"{name!r} is not a plain relative path: it must not be absolute or contain '..'",
        )
    folder_fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            try:
                inner = os.open(folder, _FOLDER, dir_fd=folder_fd)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(folder, dir_fd=folder_fd)
                inner = os.open(folder, _FOLDER, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = inner
        yield folder_fd, last
    finally:
        os.close(folder_fd)


def open_beneath(top: Path, name: str, flags: int = os.O_RDONLY, *, make: bool = False) -> int:
    """A descriptor of a plain file; OSError for a link, a folder or a device, at any step of the path."""
    with parent_beneath(top, name, make=make) as (parent, last):
        # A pipe of that name must not make us wait.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        found = os.open(last, flags, 0o644, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise FileNotFoundError(f"{name} is not a regular file")
    return found


def look_beneath(top: Path, name: str) -> os.stat_result | None:
    """What lies there, a link as itself; None when there is nothing. OSError: a link is on the way."""
    try:
        with parent_beneath(top, name) as (parent, last):
            return os.stat(last, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_file_beneath(top: Path, name: str) -> bool:
    """Whether a plain file lies there, and no link leads to it."""
    return stat.S_ISREG(_mode(top, name))


def is_folder_beneath(top: Path, name: str) -> bool:
    """Whether a folder lies there, and no link leads to it."""
    return stat.S_ISDIR(_mode(top, name))


def _mode(top: Path, name: str) -> int:
    try:
        facts = look_beneath(top, name)
    except (OSError, ValueError):
        return 0
    return 0 if facts is None else facts.st_mode


def move_beneath(top: Path, source: str, target: str) -> None:
    """Renames within a folder, replacing what has the name; a link is replaced, never followed."""
    with parent_beneath(top, source) as (here, name), parent_beneath(top, target, make=True) as (there, to):
        os.replace(name, to, src_dir_fd=here, dst_dir_fd=there)


def remove_beneath(top: Path, name: str, *, folder: bool = False) -> None:
    """Removes a file or a link, or with `folder` a folder and what is in it; nothing when it is not there."""
    try:
        with parent_beneath(top, name) as (parent, last):
            facts = os.stat(last, dir_fd=parent, follow_symlinks=False)
            if folder and stat.S_ISDIR(facts.st_mode):
                shutil.rmtree(last, dir_fd=parent)
            else:
                os.unlink(last, dir_fd=parent)
    except FileNotFoundError:
        return
