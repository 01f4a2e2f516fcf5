"""Files beneath a folder whose content somebody else chose: no step of a path is ever taken through a link.

A path is opened folder by folder with O_NOFOLLOW, each relative to the one before. This is what openat2 does
with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, on every kernel: nothing changes when a folder is swapped for a
link meanwhile. Whatever is reached through a link is an OSError.

A hard link is a file like any other to a reader: scripts make them, and the kernel makes none across the
mounts of a sandbox. To write into one could change a file elsewhere, so that is refused.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import LARGEST_JSON_BYTES, json_object

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Nobody reads deeper: a script can nest folders without end.
_DEEPEST = 64


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
                # Another process may make it at the same moment.
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=folder_fd)
                inner = os.open(folder, _FOLDER, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = inner
        yield folder_fd, last
    finally:
        os.close(folder_fd)


def open_beneath(top: Path, name: str, flags: int = os.O_RDONLY, *, make: bool = False) -> int:
    """A descriptor of a plain file; OSError for a link, a folder or a device, at any step of the path.

    To write, the file must have no other name (hard link), either.
    """
    with parent_beneath(top, name, make=make) as (parent, last):
        # A pipe of that name must not make us wait.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        found = os.open(last, flags, 0o644, dir_fd=parent)
    facts = os.fstat(found)
    problem: OSError | None = None
    if not stat.S_ISREG(facts.st_mode):
        problem = FileNotFoundError(f"{name} is not a regular file")
    elif flags & (os.O_WRONLY | os.O_RDWR) and facts.st_nlink > 1:
        problem = OSError(errno.EMLINK, "the file has a second name (hard link)", name)
    if problem is not None:
        os.close(found)
        raise problem
    return found


def open_plain(top: Path, name: str) -> IO[bytes] | None:
    """A plain file to read; None when there is none that is reached without a link. OSError: the disk's."""
    try:
        return os.fdopen(open_beneath(top, name), "rb")
    except OSError as problem:
        # ENXIO: a socket. EACCES: a file that its owner closed to us is not there for us.
        if problem.errno in {None, errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EACCES}:
            return None
        raise


def read_json_beneath(top: Path, name: str, *, most: int = LARGEST_JSON_BYTES) -> dict[str, Any] | None:
    """The object in a JSON file; None when there is no such plain file. ValueError: it holds no object."""
    file = open_plain(top, name)
    if file is None:
        return None
    with file:
        content = file.read(most + 1)
    return json_object(content, name, most=most)


def replace_beneath(
    top: Path, name: str, text: str, *, durable: bool = False, modified_ns: int | None = None
) -> None:
    """Replaces a file's text in one step, and makes folders on the way. `durable`: survives a power cut."""
    with parent_beneath(top, name, make=True) as (parent, last):
        temporary = f".{last}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=parent), "w", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                if modified_ns is not None:
                    os.utime(file.fileno(), ns=(modified_ns, modified_ns))
                os.replace(temporary, last, src_dir_fd=parent, dst_dir_fd=parent)
            except OSError:
                os.unlink(temporary, dir_fd=parent)
                raise


def walk_beneath(
    top: Path, folder: str = "", *, into: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a folder, by its path from `top`, links as themselves. `into`: folders to look into,
    by name; those that are too deep are not. Empty when a link leads to the folder."""
    pending = [folder]
    while pending:
        current = pending.pop()
        # Any name in it: the folder that holds it is the one to list.
        member = f"{current}/-".removeprefix("/")
        try:
            with parent_beneath(top, member) as (inside, _), os.scandir(inside) as found:
                entries = [(entry.name, entry.stat(follow_symlinks=False)) for entry in found]
        except OSError:
            # Gone since it was listed, or no folder.
            continue
        for name, facts in sorted(entries, key=lambda entry: entry[0]):
            path = f"{current}/{name}".removeprefix("/")
            yield path, facts
            if stat.S_ISDIR(facts.st_mode) and path.count("/") < _DEEPEST and into(name):
                pending.append(path)


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
