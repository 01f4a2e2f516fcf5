"""Folders that are complete or absent: written under another name, brought to disk, then renamed."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpubloom.errors import InputError

TEMPORARY = ".writing-"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def complete_or_absent(final: Path) -> Iterator[Path]:
    """A folder to write into: it gets its name when all is well, and else is removed.

    An OSError becomes a sentence that names the folder.
    """
    temporary = final.parent / f"{TEMPORARY}{final.name}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        # What is left of a process that was killed.
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        _sync(temporary)
        temporary.rename(final)
        _sync(final.parent)
    except BaseException as problem:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(problem, OSError):
            advice = "free disk space" if problem.errno in _FULL else "make the folder writable"
            raise OSError(
                f"{final} could not be saved: {problem.strerror or problem}. "
                f"Files that were saved earlier are intact: {advice}, then resume."
            ) from problem
        raise


def must_have_room(target: Path, needed: int, what: str) -> int:
    """The free bytes of a new folder's disk; InputError when they are too few, or nothing can be written."""
    # The folders above a new one may be new as well.
    existing = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "nothing can be written there" if existing.is_dir() else "it is not a folder"
        raise InputError(
            "cannot_write", f"{what} cannot be saved in {existing}: {why}. Choose another folder."
        )
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise InputError(
            "disk_full",
            f"{what} needs {needed / 1e9:,.3f} GB of disk space, but only {free / 1e9:,.3f} GB are free in "
            f"{existing}: free some space there, or choose a folder on another disk.",
        )
    return free


def sync_files(folder: Path, already: Mapping[str, str]) -> dict[str, str]:
    """Brings all files to disk; sha256 by name. Those in `already` are on disk and have theirs."""
    checksums = dict(already)
    for file in sorted(folder.iterdir()):
        if file.name not in checksums:
            checksums[file.name] = sha256_of(file)
            _sync(file)
    return checksums


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
